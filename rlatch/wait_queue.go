package rlatch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/pubsub"
)

// waitQueue has the waiters of one client for one latch, which share its reads. It is guarded by its shard of the
// table, and exists while it has waiters.
type waitQueue struct {
	manager *manager
	shard   *core.Shard[*waitQueue]
	key     string
	waiters map[*waiter]struct{}

	state        readState
	reads        int           // begun so far
	failures     int           // reads in a row that got no reply
	failingSince time.Duration // when the first of them failed
	failure      error         // of the last of them

	member *pubsub.Membership // nil until a read found the latch closed
	timer  timer.Timer        // for the next read
}

// readState is what a queue does. From outdated it goes to reading again, without a wait.
type readState uint8

const (
	idle     readState = iota // until a wake-up or the next re-check
	reading                   // a read is in flight
	outdated                  // as reading, and a wake-up came during the read
)

// waiter is a call in a wait queue.
type waiter struct {
	goal  goal
	since time.Duration // when the call began
	first int           // number of the first read that began after the call
	seen  bool          // that read has returned
	mark  string        // the last mark that was read
	done  chan struct{} // closed when err is set
	err   error
}

// goal is what a waiter waits for.
type goal uint8

const (
	opening goal = iota // the count is zero, or has been
	setting             // there is a count, or has been
)

// await waits until the latch has reached a goal.
func (m *manager) await(ctx context.Context, key string, until goal) error {
	shard := m.queues.Shard(key)
	shard.Lock()
	q := shard.Of[key]
	if q == nil {
		q = &waitQueue{manager: m, shard: shard, key: key, waiters: map[*waiter]struct{}{}}
		q.timer.Task = q
		shard.Of[key] = q
	}
	w := &waiter{goal: until, since: m.core.Clock.Now(), first: q.reads + 1, done: make(chan struct{})}
	q.waiters[w] = struct{}{}
	begin := q.beginLocked()
	shard.Unlock()
	if begin {
		q.read()
	}
	var why error
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-m.core.Closing():
		why = errs.ErrClosed
	}
	shard.Lock()
	defer shard.Unlock()
	if _, waits := q.waiters[w]; !waits {
		return w.err
	}
	if why != errs.ErrClosed && (!w.seen || q.failures > 0) { //nolint:errorlint // set above
		why = fmt.Errorf("%w: %w: %w", why, errs.ErrUnavailable, cmp.Or(q.failure, script.ErrNoAnswer))
	}
	q.endLocked(w, why)
	return why
}

// endLocked removes a waiter and ends its call.
func (q *waitQueue) endLocked(w *waiter, err error) {
	delete(q.waiters, w)
	w.err = err
	close(w.done)
	if len(q.waiters) > 0 {
		return
	}
	c := q.manager.core
	c.Timers.Stop(&q.timer)
	if q.member != nil {
		q.member.Leave()
		q.member = nil
		c.Waiting.Add(-1)
	}
	if q.shard.Of[q.key] == q {
		delete(q.shard.Of, q.key)
	}
}

// beginLocked reports whether to begin a read now. While one is in flight, the next one begins after it.
func (q *waitQueue) beginLocked() bool {
	if len(q.waiters) == 0 {
		return false
	}
	if q.state != idle {
		q.state = outdated
		return false
	}
	q.state = reading
	q.reads++
	return true
}

func (q *waitQueue) read() {
	q.manager.core.Batch.Start(readOf(q.key), pipeline.Normal, func(c *script.Call) {
		f, err := counted(c)
		if script.Parted(err) {
			q.readApart()
			return
		}
		q.took(f, err)
	})
}

// readApart reads while the latch's slot moves, where a call can have only one key. It reads the mark first: a mark
// that is read after the count could hide that the count was set in between.
func (q *waitQueue) readApart() {
	send := q.manager.core.Batch.Start
	send(markOf(q.key), pipeline.Normal, func(c *script.Call) {
		row := c.Row()
		mark := row.Text()
		if err := row.Err(); err != nil {
			q.took(found{}, err)
			return
		}
		send(countOf(q.key), pipeline.Normal, func(c *script.Call) {
			f, err := counted(c)
			f.mark = mark
			q.took(f, err)
		})
	})
}

// took takes the result of a read.
func (q *waitQueue) took(f found, err error) {
	q.shard.Lock()
	if err != nil {
		q.failedLocked(err)
	} else {
		q.failures, q.failure = 0, nil
		for w := range q.waiters {
			if w.first <= q.reads && w.sees(f) {
				q.endLocked(w, nil)
			}
		}
		q.restLocked(waitqueue.Recheck)
	}
	again := q.state == outdated
	q.state = idle
	begin := again && q.beginLocked()
	q.shard.Unlock()
	if begin {
		q.read()
	}
}

// sees reports whether the latch has reached the waiter's goal since its first read. A changed mark means that the count
// has been zero and has been set. The mark expires, so an empty one is not evidence either way.
func (w *waiter) sees(f found) bool {
	if (f.count == 0) == (w.goal == opening) || f.stays || w.seen && f.mark != "" && f.mark != w.mark {
		return true
	}
	w.seen = true
	if f.mark != "" {
		w.mark = f.mark
	}
	return false
}

// failedLocked decides what a failed read means. An error that will not pass ends all waits, and so does a refused
// connection for waiters that have not had a reply. The others wait until reads have failed for one lease.
func (q *waitQueue) failedLocked(err error) {
	c := q.manager.core
	now := c.Clock.Now()
	if q.failures == 0 {
		q.failingSince = now
	}
	q.failures, q.failure = q.failures+1, err
	for w := range q.waiters {
		switch {
		case w.first > q.reads:
		case script.Final(err), !w.seen && script.Refused(err), now-q.failingSince >= c.Lease && !script.Parted(err):
			q.endLocked(w, core.Unanswered(err))
		}
	}
	q.restLocked(backoff.Doubled(q.failures, 10*time.Millisecond, waitqueue.Recheck))
}

// restLocked sets the time of the next read, and subscribes to wake-ups. It is called before the read in flight ends.
func (q *waitQueue) restLocked(pause time.Duration) {
	if len(q.waiters) == 0 {
		return
	}
	c := q.manager.core
	c.Timers.Set(&q.timer, c.Clock.Now()+waitqueue.Pause(pause, c.Waiting.Load()))
	if q.member != nil {
		return
	}
	c.Waiting.Add(1)
	var confirmed bool
	if q.member, confirmed = c.Router.Join(channel(q.key), q); confirmed {
		q.state = outdated // the latch may have opened since the read
	}
}

// Due reads the latch again for a re-check.
func (q *waitQueue) Due(time.Duration) {
	q.check()
}

// Subscribed reads the latch again: a message published before the subscription was confirmed is lost.
func (q *waitQueue) Subscribed() { q.check() }

// Message reads the latch again when it has opened or its count was set.
func (q *waitQueue) Message(payload string) {
	if payload != "0" && payload != "1" {
		return
	}
	q.manager.core.Events.Woken(kinds.Latch, q.manager.core.UserName(q.key))
	q.check()
}

func (q *waitQueue) check() {
	q.shard.Lock()
	begin := q.beginLocked()
	q.shard.Unlock()
	if begin {
		q.read()
	}
}
