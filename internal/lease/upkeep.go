package lease

import (
	"container/list"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

const (
	upkeepSize = 100                   // waiters in one call
	upkeepGap  = 20 * time.Millisecond // between two sweeps, unless somebody has only now begun to listen
	upkeepSlip = 2 * time.Millisecond  // after the end of what is waited for, so that it is over in Redis too
)

// upkeep looks after all waiters of this client in Redis's queue for one name: one call about every second keeps their
// places, finds those that were taken for dead, and asks whose turn it is. So a lost message, a dead head of the queue
// or a lock that was taken away costs about a second, and nothing for each waiter. It exists while somebody waits, and
// is guarded by its shard's mu.
type upkeep struct {
	timer   timer.Timer
	space   *Space
	shard   *shard
	key     any
	waiters list.List // of *waiter, the one that has waited longest first

	at       time.Duration // when it is due; never while it is under way
	inFlight int           // calls without an answer
	sent     time.Duration // when they were sent
	soon     bool          // look again as soon as they have come
	failed   int           // sweeps in a row without an answer
	since    time.Duration // of the first of them
}

// enrollLocked has a waiter that was refused looked after, if it is of a kind that needs it.
func (w *waiter) enrollLocked() {
	q := w.queue
	if q.space.apart == nil || w.upkeep != nil || q.Head() != &w.Waiter {
		return
	}
	u := q.shard.upkeeps[q.key]
	if u == nil {
		u = &upkeep{space: q.space, shard: q.shard, key: any(q.key), at: never}
		u.timer.Task = u
		if q.shard.upkeeps == nil {
			q.shard.upkeeps = map[string]*upkeep{}
		}
		q.shard.upkeeps[q.key] = u
		q.space.core.Waiting.Add(1)
	}
	w.upkeep, w.place = u, u.waiters.PushBack(w)
}

// removeLocked forgets a waiter that was granted the lock or gave up. A nil upkeep is that of one that was never refused.
func (u *upkeep) removeLocked(w *waiter) {
	if u == nil {
		return
	}
	u.waiters.Remove(w.place)
	w.upkeep, w.place = nil, nil
	if u.waiters.Len() > 0 {
		return
	}
	key, _ := u.key.(string)
	delete(u.shard.upkeeps, key)
	u.space.core.Waiting.Add(-1)
	u.space.core.Timers.Stop(&u.timer)
}

// lookLocked sets when to look, after Redis said for how long, at most, the lock is another's; negative for no end.
func (u *upkeep) lookLocked(now, left time.Duration) {
	next := waitqueue.Pause(waitqueue.Recheck, u.space.core.Waiting.Load())
	if period := u.space.apart.Period(); period > 0 {
		next = min(next, core.Jitter(period))
	}
	if left >= 0 {
		next = min(next, max(left+core.Jitter(upkeepSlip), core.Jitter(upkeepGap)))
	}
	u.dueLocked(now + next)
}

// dueLocked has it look at a time, or sooner.
func (u *upkeep) dueLocked(at time.Duration) {
	if u.inFlight > 0 || at >= u.at {
		return
	}
	u.at = at
	u.space.core.Timers.Set(&u.timer, at)
}

// askAfterLocked has Redis asked about the waiter soon: what was announced before it listened has not been heard.
func (q *queue) askAfterLocked() {
	if q.Empty() || q.first.upkeep == nil {
		return
	}
	u := q.first.upkeep
	u.soon = u.inFlight > 0
	u.dueLocked(q.now() + time.Millisecond) // with all whose subscriptions are confirmed together
}

// Due sends a sweep.
func (u *upkeep) Due(time.Duration) {
	u.shard.mu.Lock()
	sweeps := u.sweepsLocked()
	u.shard.mu.Unlock()
	for _, r := range sweeps {
		u.space.core.Batch.Start(u.space.apart.Upkeep(u.key, r.entries), pipeline.Urgent, r.answer)
	}
}

// sweep is one call of an upkeep.
type sweep struct {
	upkeep  *upkeep
	entries []any
	waiters []*waiter
	asks    []uint64 // of each when the call was sent
}

func (u *upkeep) sweepsLocked() []*sweep {
	if u.inFlight > 0 || u.waiters.Len() == 0 {
		return nil
	}
	u.at, u.soon = never, false
	var sweeps []*sweep
	for e := u.waiters.Front(); e != nil; e = e.Next() {
		if len(sweeps) == 0 || len(sweeps[len(sweeps)-1].entries) == upkeepSize {
			sweeps = append(sweeps, &sweep{upkeep: u})
		}
		r, w := sweeps[len(sweeps)-1], e.Value.(*waiter)
		asks, asking := w.Asks()
		if asking {
			asks = 0 // its own answer will say more
		}
		r.entries, r.waiters, r.asks = append(r.entries, w.entry), append(r.waiters, w), append(r.asks, asks)
	}
	u.inFlight, u.sent = len(sweeps), u.space.core.Clock.Now()
	return sweeps
}

// answer tells the waiters of a sweep what came of it.
func (r *sweep) answer(c *script.Call) {
	u := r.upkeep
	reply, err := c.Ints()
	now := u.space.core.Clock.Now()
	u.shard.mu.Lock()
	defer u.shard.mu.Unlock()
	u.inFlight--
	if err != nil || len(reply) < 2 {
		r.failedLocked(now, err)
		return
	}
	u.failed = 0
	for _, w := range r.waiters {
		w.lastErr = nil
	}
	if turn := int(reply[0]); turn > 0 {
		if holder := u.shard.held[r.waiters[0].queue.key]; holder != nil && !holder.freed {
			holder.recheck() // it is free although this client has it: it was taken away
		}
		r.resumeLocked(turn, now)
	}
	for _, position := range reply[2:] {
		r.resumeLocked(int(position), now)
	}
	left := time.Duration(reply[1])
	if left > 0 {
		left *= time.Millisecond
	}
	u.nextLocked(now, left)
}

// resumeLocked has a waiter ask, unless it has asked since the sweep was sent.
func (r *sweep) resumeLocked(position int, now time.Duration) {
	if position < 1 || position > len(r.waiters) {
		return
	}
	w := r.waiters[position-1]
	if asks, _ := w.Asks(); asks == r.asks[position-1] {
		w.queue.Resume(now)
	}
}

// nextLocked sets when the next sweep is due.
func (u *upkeep) nextLocked(now, left time.Duration) {
	if u.waiters.Len() == 0 {
		return
	}
	u.lookLocked(now, left)
	if u.soon {
		u.dueLocked(now)
	}
}

// failedLocked takes a sweep that got no answer. Waiters whose errors cannot pass hear of them by a try of their own;
// the others go on for one lease.
func (r *sweep) failedLocked(now time.Duration, err error) {
	u := r.upkeep
	if u.failed == 0 {
		u.since = now
	}
	u.failed++
	certain := script.Judge(err) == script.NotDone && !script.Transient(err)
	for i, w := range r.waiters {
		w.lastErr = err
		if certain {
			r.resumeLocked(i+1, now)
		}
		if now-u.since >= u.space.core.Lease && !script.Parted(err) {
			w.lostTouch = true
			w.Wake()
		}
	}
	if u.waiters.Len() > 0 {
		u.dueLocked(now + min(core.Backoff(u.failed), max(u.space.apart.Period()/2, 10*time.Millisecond)))
	}
}
