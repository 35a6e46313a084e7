package rsemaphore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// giveBackLimit is how long a release that Redis refuses is repeated.
const giveBackLimit = time.Hour

// release is an operation of this client that makes permits available. During the client's tenure its own waiters may
// acquire them in the same batch, without a message. When the tenure is over, the permits are announced, and this
// client's queue rests for one tenure of each other client that waits.
type release struct {
	manager *manager
	key     string
	permits int64
	queue   *waitQueue       // when the operation was put; nil for none. Guarded by the queue's shard, as is rests
	rests   bool             // this client's tenure was over
	done    func(taken bool) // called with whether the operation is settled, so that it need not be made again; may be nil
}

// change runs an operation that makes the given number of permits available; 0 or less for one that makes none
// available.
func (m *manager) change(ctx context.Context, key, code string, permits int64, policy counter.Policy) (int64, error) {
	ask := counter.Request{Code: code, Policy: policy}
	if permits > 0 {
		r := &release{manager: m, key: key, permits: permits}
		ask.Then, ask.Put, ask.Withdrawn = r, r.put, r.withdrawn
	}
	return m.counter.Do(ctx, key, ask)
}

// put puts the operation, and right behind it the requests of waiters.
func (r *release) put(op *counter.Op) bool {
	shard := r.manager.queues.Shard(r.key)
	shard.Lock()
	defer shard.Unlock()
	if !r.manager.counter.Put(r.key, op) {
		return false
	}
	q := shard.Of[r.key]
	if q == nil {
		return true
	}
	r.queue = q
	q.expected += r.permits
	if q.waiting > 0 && q.tenure.Running() && q.tenure.Over(r.manager.core.Clock.Now(), r.manager.tenure()) {
		r.rests = true
		return true
	}
	q.wakeUps++
	q.available += r.permits
	q.announced = q.available
	if q.head != nil && int64(q.head.n) <= q.available {
		q.blocked = false
		q.askLocked()
	}
	return true
}

// withdrawn notes that the permits do not come. Waiters that already ask for them are refused and wait again.
func (r *release) withdrawn() {
	shard := r.manager.queues.Shard(r.key)
	shard.Lock()
	defer shard.Unlock()
	if r.queue != nil {
		r.queue.expected -= r.permits
	}
}

// Answered counts the available permits, and resumes the queue after a tenure.
func (r *release) Answered(op *counter.Op, others []int64) {
	shard := r.manager.queues.Shard(r.key)
	shard.Lock()
	if q := r.queue; q != nil {
		q.expected -= r.permits
		if op.Err == nil {
			q.countLocked(others)
		}
		if r.rests {
			q.restLocked(op, others)
		}
	}
	shard.Unlock()
	r.manager.counter.Go(r.key)
	taken := op.Err == nil || errors.Is(op.Err, errs.ErrUnknown) || errors.Is(op.Err, errs.ErrWrongType)
	switch {
	case r.done != nil:
		r.done(taken)
	case !taken && op.Policy == counter.Insist && op.Left(): // its caller got ErrUnknown: it must go on
		r.manager.releaseLater(r.key, op.Code, r.permits)
	}
}

// restLocked leaves the released permits to other clients, if any wait.
func (q *waitQueue) restLocked(op *counter.Op, others []int64) {
	now := q.manager.core.Clock.Now()
	available, receivers := countsOf(others)
	if q.subscribed {
		receivers-- // this client
	}
	if !q.tenure.Yield(now, receivers, q.manager.tenure(), 0) {
		q.tenure.Begin(now)
	}
	if op.Err != nil {
		q.checkLocked()
		return
	}
	q.wakeLocked(available)
}

// tenure is how long a client may pass permits among its own waiters.
func (m *manager) tenure() time.Duration { return max(m.core.HandoffBudget, waitqueue.ShortestTenure) }

// drain gives back what was drained for a call that cannot have it.
type drain struct {
	manager *manager
	key     string
}

// Answered takes the reply before the caller does: that one may close the client.
func (d drain) Answered(op *counter.Op, _ []int64) {
	if op.Err == nil && op.Result > 0 && (op.Left() || op.Unconfirmed != nil) {
		d.manager.giveBack(d.key, int(op.Result))
	}
}

// giveBack releases permits that were granted to a call which cannot have them. If Redis refuses the release, it is tried
// again. Close waits for it.
func (m *manager) giveBack(key string, n int) {
	m.core.Begin()
	code := releaseOf(n)
	m.startRelease(key, code, int64(n), func(taken bool) {
		if !taken {
			m.releaseLater(key, code, int64(n))
		}
		m.core.End()
	})
}

// releaseLater repeats a release until Redis accepts it.
func (m *manager) releaseLater(key, code string, permits int64) {
	var started atomic.Bool // each attempt releases anew: one at a time, and none after one that was taken
	attempt := func(report func(settled bool)) {
		if started.Swap(true) {
			return
		}
		m.startRelease(key, code, permits, func(taken bool) {
			started.Store(taken)
			report(taken)
		})
	}
	m.core.Settler.AddWithin(attempt, nil, m.core.Clock.Now()+giveBackLimit, waitqueue.Recheck)
}

// startRelease releases permits without a caller. It calls done with false if the release must be made again: one that
// got no answer is repeated anyway.
func (m *manager) startRelease(key, code string, permits int64, done func(taken bool)) {
	r := &release{manager: m, key: key, permits: permits, done: done}
	r.put(&counter.Op{Code: code, Policy: counter.Insist, Answerer: r})
	m.counter.Go(key)
}
