package rbarrier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
	"github.com/redlatch/redlatch/pubsub"
)

// maxParticipants is the highest number of participants: one script ends the round of all.
const maxParticipants = 10_000

// manager is a client's state for its barriers.
type manager struct {
	core    *core.Core
	good    time.Duration // a place, without being renewed
	recheck time.Duration // how often a participant asks at least

	mu      sync.Mutex // guards the rest
	waiters map[*waiter]struct{}
	entered map[*DoubleBarrier]struct{}
}

func newManager(c *core.Core) *manager {
	good := min(longest, c.Lease)
	m := &manager{core: c, good: good, recheck: good / 5, waiters: map[*waiter]struct{}{}, entered: map[*DoubleBarrier]struct{}{}}
	presence.Of(c).Add(m)
	c.Register(m)
	return m
}

// Holds returns nothing: a barrier is not held.
func (m *manager) Holds() []presence.Hold { return nil }

// Waits returns the calls that wait for other participants.
func (m *manager) Waits() []presence.Wait {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []presence.Wait
	for w := range m.waiters {
		all = append(all, presence.Wait{Kind: kinds.Barrier, Name: m.core.UserName(w.name), Since: m.core.Clock.Time(w.since)})
	}
	return all
}

// waiter is a call that waits.
type waiter struct {
	name  string
	since time.Duration
	poke  chan struct{} // one element: ask again; never closed
}

var _ pubsub.Listener = (*waiter)(nil)

// Subscribed has the call ask: a message that came before is lost.
func (w *waiter) Subscribed() { w.Message("") }

// Message has the call ask.
func (w *waiter) Message(string) {
	select {
	case w.poke <- struct{}{}:
	default: // it will
	}
}

// rounds is what both kinds of barrier have in common.
type rounds struct {
	manager *manager
	name    string // with the client's prefix
	n       int
	keys    keys
	err     error
}

func newRounds(c *core.Core, name string, n int, keysOf func(name string) keys) rounds {
	r := rounds{manager: core.Manager(c, newManager), name: c.Prefix + name, n: n}
	r.keys = keysOf(r.name)
	r.err = core.CheckUserName(name, r.name)
	if r.err == nil && (n < 1 || n > maxParticipants) {
		r.err = fmt.Errorf("%w: %d participants are not between 1 and %d", errs.ErrInvalid, n, maxParticipants)
	}
	return r
}

// admit refuses a call before any I/O. After one that it admits, core.End has to be called.
func (r *rounds) admit(ctx context.Context) error {
	switch {
	case r.err != nil:
		return r.err
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return ctx.Err()
	case !r.manager.core.Admit():
		return errs.ErrClosed
	}
	return nil
}

// arrive waits until the round of a new participant is complete.
func (r *rounds) arrive(ctx context.Context, who string) error {
	return r.wait(ctx, who, false, func(had bool) *script.Call { return r.keys.arrive(who, r.n, r.manager.good, had) })
}

// wait asks until the participant's round is complete. If the call ends otherwise, the round is broken.
func (r *rounds) wait(ctx context.Context, who string, had bool, ask func(had bool) *script.Call) error {
	m := r.manager
	w := &waiter{name: r.name, since: m.core.Clock.Now(), poke: make(chan struct{}, 1)}
	m.mu.Lock()
	m.waiters[w] = struct{}{}
	m.mu.Unlock()
	err := r.ask(ctx, w, had, ask)
	m.mu.Lock()
	delete(m.waiters, w)
	m.mu.Unlock()
	if err != nil && !errors.Is(err, ErrBroken) && !errors.Is(err, errs.ErrInvalid) {
		r.quit(who)
	}
	return err
}

func (r *rounds) ask(ctx context.Context, w *waiter, had bool, ask func(had bool) *script.Call) error {
	c := r.manager.core
	member, _ := c.Router.Join(r.keys.channel, w) // first, so that no message is lost after an answer; see Subscribed
	defer member.Leave()
	answered := c.Clock.Now()
	unknown := false // a call without an answer may have completed the round; ErrClosed says as much, and cannot be repeated
	end := func(err error) error {
		if unknown && !errors.Is(err, errs.ErrUnknown) && !errors.Is(err, errs.ErrClosed) {
			err = fmt.Errorf("%w: %w", errs.ErrUnknown, err)
		}
		return err
	}
	for {
		is, n, err := r.answer(ctx, had, ask)
		unknown = err != nil && (unknown || errors.Is(err, errs.ErrUnknown))
		switch now := c.Clock.Now(); {
		case err == nil:
			answered = now
		case !had || ctx.Err() != nil || !errors.Is(err, errs.ErrUnavailable) || now-answered >= r.manager.good:
			return end(err)
		}
		switch {
		case err != nil: // the place is good yet
		case is == complete:
			return nil
		case is == broken:
			return ErrBroken
		case is == otherNumber:
			return fmt.Errorf("%w: %d participants, and the barrier has %d", errs.ErrInvalid, r.n, n)
		}
		had = had || err == nil && is == placed
		if err := r.rest(ctx, w); err != nil {
			return end(err)
		}
	}
}

// answer asks. Its error is [errs.ErrUnavailable] if Redis does not answer, or cannot serve at the moment. After a call
// without a reply it is so too, and [errs.ErrUnknown] besides, whatever Redis said to a repetition.
//
// A call that is repeated for long takes no place any more: an earlier one may have been in a round that Redis forgets.
func (r *rounds) answer(ctx context.Context, had bool, ask func(had bool) *script.Call) (is code, n int, err error) {
	c := r.manager.core
	began := c.Clock.Now()
	call, _, err := c.Query(ctx, func() *script.Call { return ask(had || c.Clock.Now()-began >= remembered/2) })
	switch {
	case err == nil:
		return readCode(call)
	case errors.Is(err, errs.ErrUnknown):
		err = fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	return 0, 0, c.Interrupted(ctx, err)
}

// rest waits for a message, or until it is time to ask again.
func (r *rounds) rest(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(core.Jitter(r.manager.recheck))
	defer timer.Stop()
	select {
	case <-w.poke:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.manager.core.Closing():
		return errs.ErrClosed
	}
	return nil
}

// quit breaks the participant's round, in the background. Without an answer from Redis, its place ends by itself.
func (r *rounds) quit(who string) {
	s, c := r.manager.core.Settler, r.manager.core.Clock
	s.Clean(settle.Cleanup{
		Call:    func() *script.Call { return r.keys.quit(who) },
		Settles: func(*script.Call) bool { return true },
		Until:   c.Now() + r.manager.good + settle.Straggler,
	})
}

func (r *rounds) wrap(verb string, err error) error {
	return errs.Wrap("rbarrier", verb, r.manager.core.UserName(r.name), err)
}
