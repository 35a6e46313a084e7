package rlatch

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	recheck     = time.Second // a gate reads its latch at least this often, jittered
	recheckRate = 500         // re-checks per second of one client; above it, each gate re-checks less often
)

// gate has the waiters of one client for one latch, which share its reads. It is guarded by its part of the table, and
// exists while it has waiters.
type gate struct {
	manager *manager
	part    *core.Shard[*gate]
	key     string
	waiters map[*waiter]struct{}

	looks   int           // reads so far
	looking bool          // a read is in flight
	again   bool          // a wake-up came during the read: read once more
	failed  int           // reads in a row that got no reply
	failing time.Duration // when the first of them failed

	member *pubsub.Membership // nil until a read found the latch closed
	timer  timer.Timer        // for the next read
}

// waiter is a call that waits at a gate.
type waiter struct {
	goal  goal
	first int           // number of the first read that began after the call
	knows bool          // that read has returned
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
func (h *manager) await(ctx context.Context, key string, until goal) error {
	part := h.gates.Shard(key)
	part.Lock()
	g := part.Of[key]
	if g == nil {
		g = &gate{manager: h, part: part, key: key, waiters: map[*waiter]struct{}{}}
		g.timer.Task = g
		part.Of[key] = g
	}
	w := &waiter{goal: until, first: g.looks + 1, done: make(chan struct{})}
	g.waiters[w] = struct{}{}
	look := g.lookLocked()
	part.Unlock()
	if look {
		g.look()
	}
	var why error
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-h.core.Closing():
		why = errs.ErrClosed
	}
	part.Lock()
	defer part.Unlock()
	if _, waits := g.waiters[w]; !waits {
		return w.err
	}
	if why != errs.ErrClosed && (!w.knows || g.failed > 0) { //nolint:errorlint // set above
		why = fmt.Errorf("%w: %w", why, errs.ErrUnavailable)
	}
	g.endLocked(w, why)
	return why
}

// endLocked removes a waiter and ends its call.
func (g *gate) endLocked(w *waiter, err error) {
	delete(g.waiters, w)
	w.err = err
	close(w.done)
	if len(g.waiters) > 0 {
		return
	}
	e := g.manager.core
	e.Timers.Stop(&g.timer)
	if g.member != nil {
		g.member.Leave()
		g.member = nil
		e.Waiting.Add(-1)
	}
	if g.part.Of[g.key] == g {
		delete(g.part.Of, g.key)
	}
}

// lookLocked reports whether to begin a read now. While one is in flight, the next one begins after it.
func (g *gate) lookLocked() bool {
	if len(g.waiters) == 0 {
		return false
	}
	if g.looking {
		g.again = true
		return false
	}
	g.looking = true
	g.looks++
	return true
}

func (g *gate) look() {
	g.manager.core.Batch.Start(lookAt(g.key), pipeline.Normal, func(c *script.Call) {
		n, mark, err := counted(c)
		if script.Parted(err) {
			g.lookTwice()
			return
		}
		g.looked(n, mark, err)
	})
}

// lookTwice reads while the latch's slot moves, where a call can have only one key. It reads the mark first: a mark
// that is read after the count could hide that the count was set in between.
func (g *gate) lookTwice() {
	send := g.manager.core.Batch.Start
	send(markOf(g.key), pipeline.Normal, func(c *script.Call) {
		mark, err := c.Text()
		if err != nil {
			g.looked(0, "", err)
			return
		}
		send(countOf(g.key), pipeline.Normal, func(c *script.Call) {
			n, _, err := counted(c)
			g.looked(n, mark, err)
		})
	})
}

// looked takes the result of a read.
func (g *gate) looked(n int, mark string, err error) {
	g.part.Lock()
	g.looking = false
	if err != nil {
		g.failedLocked(err)
	} else {
		g.failed = 0
		for w := range g.waiters {
			if w.first <= g.looks && w.sees(n, mark) {
				g.endLocked(w, nil)
			}
		}
		g.restLocked(recheck)
	}
	look := false
	if g.again {
		g.again = false
		look = g.lookLocked()
	}
	g.part.Unlock()
	if look {
		g.look()
	}
}

// sees reports whether the latch has reached the waiter's goal since its call. A changed mark means that the count has
// been zero and has been set. The mark expires, so an empty one is not evidence either way.
func (w *waiter) sees(n int, mark string) bool {
	if (n == 0) == (w.goal == opening) || w.knows && mark != "" && mark != w.mark {
		return true
	}
	w.knows = true
	if mark != "" {
		w.mark = mark
	}
	return false
}

// failedLocked decides what a failed read means. An error that will not pass ends all waits, and so does a refused
// connection for waiters that have not had a reply. The others wait until reads have failed for one lease.
func (g *gate) failedLocked(err error) {
	e := g.manager.core
	certain, now := script.Judge(err) == script.NotDone, e.Clock.Now()
	if g.failed == 0 {
		g.failing = now
	}
	g.failed++
	for w := range g.waiters {
		switch {
		case w.first > g.looks:
		case certain && (!script.Transient(err) || !w.knows && script.Refused(err)), now-g.failing >= e.Lease && !script.Parted(err):
			g.endLocked(w, core.Unanswered(err))
		}
	}
	g.restLocked(backoff.Doubled(g.failed, 10*time.Millisecond, recheck))
}

// restLocked sets the time of the next read, and subscribes to wake-ups.
func (g *gate) restLocked(pause time.Duration) {
	if len(g.waiters) == 0 {
		return
	}
	e := g.manager.core
	spread := max(1, float64(e.Waiting.Load())/recheckRate)
	e.Timers.Set(&g.timer, e.Clock.Now()+core.Jitter(time.Duration(float64(pause)*spread)))
	if g.member != nil {
		return
	}
	e.Waiting.Add(1)
	var confirmed bool
	if g.member, confirmed = e.Router.Join(channel(g.key), g); confirmed {
		g.again = true // it may have opened since it was looked at
	}
}

// Due reads the latch again for a re-check.
func (g *gate) Due(time.Duration) {
	g.news()
}

// Subscribed reads the latch again: a message published before the subscription was confirmed is lost.
func (g *gate) Subscribed() { g.news() }

// Message reads the latch again when it has opened or its count was set.
func (g *gate) Message(payload string) {
	if payload != "0" && payload != "1" {
		return
	}
	if f := g.manager.core.Hooks.Woken; f != nil {
		f("rlatch", g.manager.core.UserName(g.key))
	}
	g.news()
}

func (g *gate) news() {
	g.part.Lock()
	look := g.lookLocked()
	g.part.Unlock()
	if look {
		g.look()
	}
}
