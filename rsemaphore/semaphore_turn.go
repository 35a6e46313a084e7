package rsemaphore

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
)

// handing is an operation of this client that makes permits available. While the client's turn lasts, the client's own
// waiters may acquire them in the same batch, without a message. When the turn is over, the permits are announced, and
// this client's queue pauses for one turn of each other client that waits.
type handing struct {
	manager *manager
	key     string
	permits int64
	line    *line            // the wait queue when the operation was put; nil for none. Guarded by the line's part, as is resting
	resting bool             // this client's turn was over
	then    func(taken bool) // called with whether the operation is settled, so that it need not be made again; may be nil
}

// put puts the operation, and right behind it the requests of waiters.
func (h *handing) put(op *counter.Op) bool {
	part := h.manager.lines.Shard(h.key)
	part.Lock()
	defer part.Unlock()
	if !h.manager.counter.Put(h.key, op) {
		return false
	}
	l := part.Of[h.key]
	if l == nil {
		return true
	}
	h.line = l
	l.coming += h.permits
	if l.standing > 0 && l.turnAt != 0 && h.manager.core.Clock.Now()-l.turnAt >= h.manager.turn() {
		h.resting = true
		return true
	}
	l.wakes++
	l.spare += h.permits
	l.heard = l.spare
	if l.head != nil && int64(l.head.n) <= l.spare {
		l.blocked = false
		l.askLocked(l.asked == 0)
	}
	return true
}

// withdrawn notes that the permits do not come. Waiters that already ask for them are refused and wait again.
func (h *handing) withdrawn() {
	part := h.manager.lines.Shard(h.key)
	part.Lock()
	defer part.Unlock()
	if h.line != nil {
		h.line.coming -= h.permits
	}
}

// Answered counts the available permits, and resumes the queue after a turn.
func (h *handing) Answered(op *counter.Op, others []int64) {
	part := h.manager.lines.Shard(h.key)
	part.Lock()
	if l := h.line; l != nil {
		l.coming -= h.permits
		if op.Err == nil {
			l.countLocked(others)
		}
		if h.resting {
			l.turnEndedLocked(op, others)
		}
	}
	part.Unlock()
	h.manager.counter.Go(h.key)
	taken := op.Err == nil || errors.Is(op.Err, errs.ErrUnknown) || errors.Is(op.Err, errs.ErrWrongType)
	switch {
	case h.then != nil:
		h.then(taken)
	case !taken && op.Policy == counter.Insist && op.Left(): // its caller got ErrUnknown: it must go on
		h.manager.owe(h.key, op.Code, h.permits)
	}
}

// turnEndedLocked leaves the released permits to other clients, if any wait.
func (l *line) turnEndedLocked(op *counter.Op, others []int64) {
	now := l.manager.core.Clock.Now()
	there, heard := after(others)
	if l.confirmed {
		heard--
	}
	if l.turnAt = now; heard > 0 {
		l.turnAt = 0
		l.restUntil = now + min(time.Duration(heard)*l.manager.turn(), longestRest)
	}
	if op.Err != nil {
		l.lookLocked()
		return
	}
	l.wakeLocked(there)
}

// turn is how long a client may pass permits among its own waiters.
func (d *manager) turn() time.Duration { return max(d.core.HandoffBudget, shortestTurn) }

// giveBack releases permits that were granted after the call had given up. If Redis refuses the release, it is tried
// again.
func (d *manager) giveBack(key string, n int) {
	code := releaseOf(n)
	d.offer(key, code, int64(n), func(taken bool) {
		if !taken {
			d.owe(key, code, int64(n))
		}
	})
}

// owe repeats a release until Redis accepts it.
func (d *manager) owe(key, code string, permits int64) {
	var offered atomic.Bool // each offer releases anew: one at a time, and none after one that was taken
	attempt := func(report func(settled bool)) {
		if offered.Swap(true) {
			return
		}
		d.offer(key, code, permits, func(taken bool) {
			offered.Store(taken)
			report(taken)
		})
	}
	e := d.core
	e.Settler.AddWithin(attempt, func() {}, e.Clock.Now()+owed, recheck)
}

// offer releases permits without a caller. It calls then with false if the release must be offered again: one that got
// no answer is repeated anyway.
func (d *manager) offer(key, code string, permits int64, then func(taken bool)) {
	h := &handing{manager: d, key: key, permits: permits, then: then}
	h.put(&counter.Op{Code: code, Policy: counter.Insist, Answerer: h})
	d.counter.Go(key)
}
