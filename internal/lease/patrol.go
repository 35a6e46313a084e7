package lease

import (
	"container/list"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

const (
	patrolSize = 100                   // waiters in one call
	patrolGap  = 20 * time.Millisecond // between two patrols, unless somebody has only now begun to listen
	patrolSlip = 2 * time.Millisecond  // after the end of what is waited for, so that it is over in Redis too
)

// patrol looks after all waiters of this client in Redis's queue for one name: one call about every second keeps their
// places, finds those that were taken for dead, and asks whose turn it is. So a lost message, a dead head of the queue
// or a lock that was taken away costs about a second, and nothing for each waiter. It exists while somebody waits, and
// is guarded by its shard's mu.
type patrol struct {
	timer   timer.Timer
	space   *Space
	shard   *shard
	key     any
	waiters list.List // of *waiter, the one that has waited longest first

	at       time.Duration // when it is due; never while it is under way
	underWay int           // calls without an answer
	sent     time.Duration // when they were sent
	soon     bool          // look again as soon as they have come
	failed   int           // rounds in a row without an answer
	since    time.Duration // of the first of them
}

// enrollLocked has a waiter that was refused looked after, if it is of a kind that needs it.
func (w *waiter) enrollLocked() {
	l := w.line
	if l.space.apart == nil || w.patrol != nil || l.head != w {
		return
	}
	p := l.shard.patrols[l.key]
	if p == nil {
		p = &patrol{space: l.space, shard: l.shard, key: any(l.key), at: never}
		p.timer.Task = p
		if l.shard.patrols == nil {
			l.shard.patrols = map[string]*patrol{}
		}
		l.shard.patrols[l.key] = p
		l.space.core.Waiting.Add(1)
	}
	w.patrol, w.place = p, p.waiters.PushBack(w)
}

// removeLocked forgets a waiter that was granted the lock or gave up. A nil patrol is that of one that was never refused.
func (p *patrol) removeLocked(w *waiter) {
	if p == nil {
		return
	}
	p.waiters.Remove(w.place)
	w.patrol, w.place = nil, nil
	if p.waiters.Len() > 0 {
		return
	}
	key, _ := p.key.(string)
	delete(p.shard.patrols, key)
	p.space.core.Waiting.Add(-1)
	p.space.core.Timers.Stop(&p.timer)
}

// lookLocked sets when to look, after Redis said for how long, at most, the lock is another's; negative for no end.
func (p *patrol) lookLocked(now, left time.Duration) {
	next := core.Jitter(recheck)
	if n := p.space.core.Waiting.Load(); n > recheckRate {
		next *= time.Duration(n / recheckRate)
	}
	if period := p.space.apart.Period(); period > 0 {
		next = min(next, core.Jitter(period))
	}
	if left >= 0 {
		next = min(next, max(left+core.Jitter(patrolSlip), core.Jitter(patrolGap)))
	}
	p.dueLocked(now + next)
}

// dueLocked has it look at a time, or sooner.
func (p *patrol) dueLocked(at time.Duration) {
	if p.underWay > 0 || at >= p.at {
		return
	}
	p.at = at
	p.space.core.Timers.Set(&p.timer, at)
}

// askAfterLocked has Redis asked about the waiter soon: what was announced before it listened has not been heard.
func (l *line) askAfterLocked() {
	if l.head == nil || l.head.patrol == nil {
		return
	}
	p := l.head.patrol
	p.soon = p.underWay > 0
	p.dueLocked(l.space.core.Clock.Now() + time.Millisecond) // with all whose subscriptions are confirmed together
}

// tried notes that a try has ended.
func (w *waiter) tried() {
	w.line.shard.mu.Lock()
	w.trying = false
	w.line.shard.mu.Unlock()
}

// Due sends a round.
func (p *patrol) Due(time.Duration) {
	p.shard.mu.Lock()
	rounds := p.roundsLocked()
	p.shard.mu.Unlock()
	for _, r := range rounds {
		p.space.core.Batch.Start(p.space.apart.Patrol(p.key, r.entries), pipeline.Urgent, r.answer)
	}
}

// round is one call of a patrol.
type round struct {
	patrol  *patrol
	entries []any
	waiters []*waiter
	asks    []uint64 // of each when the call was sent
}

func (p *patrol) roundsLocked() []*round {
	if p.underWay > 0 || p.waiters.Len() == 0 {
		return nil
	}
	p.at, p.soon = never, false
	var rounds []*round
	for e := p.waiters.Front(); e != nil; e = e.Next() {
		if len(rounds) == 0 || len(rounds[len(rounds)-1].entries) == patrolSize {
			rounds = append(rounds, &round{patrol: p})
		}
		r, w := rounds[len(rounds)-1], e.Value.(*waiter)
		asks := w.asks
		if w.trying {
			asks = 0 // its own answer will say more
		}
		r.entries, r.waiters, r.asks = append(r.entries, w.entry), append(r.waiters, w), append(r.asks, asks)
	}
	p.underWay, p.sent = len(rounds), p.space.core.Clock.Now()
	return rounds
}

// answer tells the waiters of a round what came of it.
func (r *round) answer(c *script.Call) {
	p := r.patrol
	reply, err := c.Ints()
	now := p.space.core.Clock.Now()
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	p.underWay--
	if err != nil || len(reply) < 2 {
		r.failedLocked(now, err)
		return
	}
	p.failed = 0
	for _, w := range r.waiters {
		w.lastErr = nil
	}
	if turn := int(reply[0]); turn > 0 {
		if holder := p.shard.held[r.waiters[0].line.key]; holder != nil && !holder.freed {
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
	p.nextLocked(now, left)
}

// resumeLocked has a waiter ask, unless it has asked since the round was sent.
func (r *round) resumeLocked(position int, now time.Duration) {
	if position < 1 || position > len(r.waiters) {
		return
	}
	if w := r.waiters[position-1]; w.asks == r.asks[position-1] {
		w.line.resumeLocked(now)
	}
}

// nextLocked sets when the next round is due.
func (p *patrol) nextLocked(now, left time.Duration) {
	if p.waiters.Len() == 0 {
		return
	}
	p.lookLocked(now, left)
	if p.soon {
		p.dueLocked(now)
	}
}

// failedLocked takes a round that got no answer. Waiters whose errors cannot pass hear of them by a try of their own;
// the others go on for one lease.
func (r *round) failedLocked(now time.Duration, err error) {
	p := r.patrol
	if p.failed == 0 {
		p.since = now
	}
	p.failed++
	certain := script.Judge(err) == script.NotDone && !script.Transient(err)
	for i, w := range r.waiters {
		w.lastErr = err
		if certain {
			r.resumeLocked(i+1, now)
		}
		if now-p.since >= p.space.core.Lease && !script.Parted(err) {
			w.lostTouch = true
			w.signalLocked()
		}
	}
	if p.waiters.Len() > 0 {
		p.dueLocked(now + min(core.Backoff(p.failed), max(p.space.apart.Period()/2, 10*time.Millisecond)))
	}
}
