package rsemaphore

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
)

// handing is an operation of this client that makes permits available. Those who wait in this client may have them in the
// same batch, without a message to anybody, as long as the client's turn lasts. Then the others are given a chance: the
// permits are announced, and this client's line rests for as long as the others need for a turn each.
type handing struct {
	desk    *manager
	key     string
	permits int64
	line    *line            // that there was when the operation was put; nil if there was none. Guarded by the line's part, as is resting
	resting bool             // the client's turn was over
	then    func(taken bool) // hears, at last, whether the permits need not be offered again; may be nil
}

// put puts the operation, and those who wait right behind it.
func (h *handing) put(op *counter.Op) bool {
	part := h.desk.lines.Part(h.key)
	part.Lock()
	defer part.Unlock()
	if !h.desk.book.Put(h.key, op) {
		return false
	}
	l := part.Of[h.key]
	if l == nil {
		return true
	}
	h.line = l
	l.coming += h.permits
	if l.standing > 0 && l.turnAt != 0 && h.desk.core.Clock.Now()-l.turnAt >= h.desk.turn() {
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

// withdrawn says that the permits do not come. Who asks for them already is refused, and the line waits again.
func (h *handing) withdrawn() {
	part := h.desk.lines.Part(h.key)
	part.Lock()
	defer part.Unlock()
	if h.line != nil {
		h.line.coming -= h.permits
	}
}

// Answered counts what is there, and lets the line go on after a turn.
func (h *handing) Answered(op *counter.Op, others []int64) {
	part := h.desk.lines.Part(h.key)
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
	h.desk.book.Go(h.key)
	taken := op.Err == nil || errors.Is(op.Err, errs.ErrUnknown) || errors.Is(op.Err, errs.ErrWrongType)
	switch {
	case h.then != nil:
		h.then(taken)
	case !taken && op.Policy == counter.Insist && op.Left(): // its caller has been told that it goes on
		h.desk.owe(h.key, op.Code, h.permits)
	}
}

// turnEndedLocked leaves what was released to the others, if there are any.
func (l *line) turnEndedLocked(op *counter.Op, others []int64) {
	now := l.desk.core.Clock.Now()
	there, heard := after(others)
	if l.confirmed {
		heard--
	}
	if l.turnAt = now; heard > 0 {
		l.turnAt = 0
		l.restUntil = now + min(time.Duration(heard)*l.desk.turn(), longestRest)
	}
	if op.Err != nil {
		l.lookLocked()
		return
	}
	l.wakeLocked(there)
}

// turn is how long a client may hand permits on among its own.
func (d *manager) turn() time.Duration { return max(d.core.HandoffBudget, shortestTurn) }

// giveBack releases permits that were granted to a call which had given up. If Redis refuses that, it is tried again: nobody
// else will.
func (d *manager) giveBack(key string, n int) {
	code := releaseOf(n)
	d.offer(key, code, int64(n), func(taken bool) {
		if !taken {
			d.owe(key, code, int64(n))
		}
	})
}

// owe has a release carried out as soon as Redis lets that be done.
func (d *manager) owe(key, code string, permits int64) {
	var offered atomic.Bool // each offer counts: one at a time, and none after the one that was taken
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

// offer releases permits for nobody, and tells whether they need not be offered again: what got no answer is repeated anyway.
func (d *manager) offer(key, code string, permits int64, then func(taken bool)) {
	h := &handing{desk: d, key: key, permits: permits, then: then}
	h.put(&counter.Op{Code: code, Policy: counter.Insist, Answerer: h})
	d.book.Go(key)
}
