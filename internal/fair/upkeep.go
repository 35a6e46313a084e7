package fair

import (
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

const (
	sweepSize = 100                   // waiters in one call
	sweepGap  = 20 * time.Millisecond // between two sweeps, unless somebody has only now begun to listen
	sweepSlip = 2 * time.Millisecond  // after the end of what is waited for, so that it is over in Redis too
	never     = waitqueue.Never
)

// upkeeps are the upkeeps of a client, by name.
type upkeeps struct {
	core *core.Core
	kind *kind

	mu sync.Mutex // guards of and every upkeep in it. A wait queue's mutex is locked before it
	of map[string]*upkeep
}

var _ locker.Upkeep = (*upkeeps)(nil)

// upkeep looks after the waiters of this client in Redis's queue for one name: one call about every second keeps their
// places, finds those that were taken for dead, and asks whose turn it is. So a lost message or a lock that was taken
// away costs about a second, a dead head of the queue the rest of its time, and nothing for each waiter. It exists while
// somebody waits.
type upkeep struct {
	timer timer.Timer
	all   *upkeeps
	key   string

	// The rest is guarded by the mutex of all.

	waiters  []waiter      // the one that has waited longest first
	at       time.Duration // when the next sweep is due; never while one is in flight
	inFlight int           // calls without a reply
	sent     time.Duration // when they were sent
	again    bool          // sweep again as soon as they have come
	failed   int           // sweeps in a row without a reply
	since    time.Duration // of the first of them
}

// waiter is one that is looked after.
type waiter struct {
	*locker.Waiter
	since time.Duration // it was in Redis's queue by then
}

// Channel is where a waiter is notified that it is its turn.
func (*upkeeps) Channel(key, entry string) string { return channel(key) + ":" + entry }

// Refused looks after a waiter from here on.
func (a *upkeeps) Refused(w *locker.Waiter, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.of[w.Key()]
	if u == nil {
		u = &upkeep{all: a, key: w.Key(), at: never}
		u.timer.Task = u
		a.of[w.Key()] = u
		a.core.Waiting.Add(1)
	}
	if !slices.ContainsFunc(u.waiters, func(other waiter) bool { return other.Waiter == w }) {
		u.waiters = append(u.waiters, waiter{w, a.core.Clock.Now()})
	}
	u.sweepAfterLocked(left)
}

// Left looks after a waiter no more.
func (a *upkeeps) Left(w *locker.Waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.of[w.Key()]
	if u == nil {
		return
	}
	u.waiters = slices.DeleteFunc(u.waiters, func(other waiter) bool { return other.Waiter == w })
	if len(u.waiters) > 0 {
		return
	}
	delete(a.of, u.key)
	a.core.Waiting.Add(-1)
	a.core.Timers.Stop(&u.timer)
}

// Listening sweeps soon: what was announced before the waiter listened has not been heard. Nothing was announced to one that asked
// when another waiter of this client was in the queue already, and still is: that one's turn comes first.
func (a *upkeeps) Listening(w *locker.Waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.of[w.Key()]
	if u == nil || len(u.waiters) > 0 && u.waiters[0].Waiter != w && u.waiters[0].since <= w.LastAsked() {
		return
	}
	u.again = u.inFlight > 0
	u.sweepByLocked(a.core.Clock.Now() + time.Millisecond) // with all whose subscriptions are confirmed together
}

// Silent reports whether the reply to a sweep is missing.
func (a *upkeeps) Silent(w *locker.Waiter, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.of[w.Key()]
	return u != nil && u.inFlight > 0 && waitqueue.Slow(u.sent, now)
}

// sweepAfterLocked sets when to sweep, after Redis said for how long, at most, the lock is another's; negative for no end.
func (u *upkeep) sweepAfterLocked(left time.Duration) {
	next := waitqueue.Pause(waitqueue.Recheck, u.all.core.Waiting.Load())
	if period := u.all.kind.period(); period > 0 {
		next = min(next, core.Jitter(period))
	}
	if left >= 0 {
		next = min(next, max(left+core.Jitter(sweepSlip), core.Jitter(sweepGap)))
	}
	u.sweepByLocked(u.all.core.Clock.Now() + next)
}

// sweepByLocked has it sweep at a time, or sooner.
func (u *upkeep) sweepByLocked(at time.Duration) {
	if u.inFlight > 0 || at >= u.at {
		return
	}
	u.at = at
	u.all.core.Timers.Set(&u.timer, at)
}

// Due sends a sweep.
func (u *upkeep) Due(time.Duration) {
	u.all.mu.Lock()
	if u.inFlight > 0 {
		u.all.mu.Unlock()
		return
	}
	waiters := slices.Clone(u.waiters)
	u.at, u.again = never, false
	u.inFlight, u.sent = (len(waiters)+sweepSize-1)/sweepSize, u.all.core.Clock.Now()
	u.all.mu.Unlock()
	for some := range slices.Chunk(waiters, sweepSize) {
		s := &sweep{upkeep: u, waiters: some, asks: make([]uint64, len(some))}
		entries := make([]any, len(some))
		for i, w := range some {
			entries[i], s.asks[i] = w.Entry(), w.Questions()
		}
		u.all.core.Batch.Start(u.all.kind.upkeep(u.key, entries), pipeline.Urgent, s.answered)
	}
}

// sweep is one call in flight.
type sweep struct {
	upkeep  *upkeep
	waiters []waiter
	asks    []uint64 // how often each had asked when the call was sent
}

// answered tells the waiters what came of a sweep.
func (s *sweep) answered(c *script.Call) {
	reply, err := c.Ints()
	if err != nil || len(reply) < 2 {
		s.lost(err)
		return
	}
	for _, w := range s.waiters {
		w.Swept(nil)
	}
	if turn := int(reply[0]); turn > 0 {
		s.waiters[0].DoubtHolder()
		s.resume(turn)
	}
	for _, position := range reply[2:] {
		s.resume(int(position))
	}
	left := time.Duration(reply[1])
	if left > 0 {
		left *= time.Millisecond
	}
	u := s.upkeep
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	u.inFlight--
	u.failed = 0
	if len(u.waiters) == 0 {
		return
	}
	u.sweepAfterLocked(left)
	if u.again {
		u.sweepByLocked(u.all.core.Clock.Now())
	}
}

// resume has a waiter ask, unless it has asked since the sweep was sent.
func (s *sweep) resume(position int) {
	if position >= 1 && position <= len(s.waiters) {
		s.waiters[position-1].Resume(s.asks[position-1])
	}
}

// lost takes a sweep that got no reply. Waiters whose errors cannot pass hear of them by an attempt of their own; the others go on for
// one lease.
func (s *sweep) lost(err error) {
	u := s.upkeep
	e := u.all.core
	now := e.Clock.Now()
	u.all.mu.Lock()
	u.inFlight--
	if u.failed == 0 {
		u.since = now
	}
	u.failed++
	over := now-u.since >= e.Lease && !script.Parted(err)
	if len(u.waiters) > 0 {
		u.sweepByLocked(now + min(core.Backoff(u.failed), max(u.all.kind.period()/2, 10*time.Millisecond)))
	}
	u.all.mu.Unlock()
	final := script.Final(err)
	for i, w := range s.waiters {
		w.Swept(err)
		if final {
			s.resume(i + 1)
		}
		if over {
			w.Fail(err)
		}
	}
}
