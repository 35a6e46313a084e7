package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
)

// holdContext is a hold seen as a context. Its Done channel, which takes memory, is made when it is first asked for.
type holdContext Hold

// Context returns the context of the hold. That of a nil hold has ended.
func (h *Hold) Context() context.Context {
	if h == nil {
		return core.EndedContext(errs.ErrNotHeld)
	}
	return (*holdContext)(h)
}

func (c *holdContext) hold() *Hold { return (*Hold)(c) }

// Deadline returns the deadline of the context that the hold was given. The end of a lease is none: it may move.
func (c *holdContext) Deadline() (time.Time, bool) { return c.hold().given.Deadline() }

// Done returns a channel that is closed when the context ends.
func (c *holdContext) Done() <-chan struct{} { return c.hold().materialize().Done() }

// Err returns context.Canceled or context.DeadlineExceeded once the context has ended. It looks at the clock, so that
// a process that was stopped learns of a lease that ended meanwhile, whether or not its timers have run.
func (c *holdContext) Err() error {
	h := c.hold()
	h.lease.mu.Lock()
	ended, inner := h.over || h.cause != nil, h.inner
	late := !ended && h.lateLocked(h.lease.now())
	h.lease.mu.Unlock()
	switch {
	case late:
		h.lease.expire(h.lease.now())
		return c.Err() // a renewal's answer may have come between
	case inner != nil && (!ended || inner.Err() != nil):
		return inner.Err()
	case ended:
		return context.Canceled
	}
	return h.given.Err()
}

// Value answers the search for a lineage, and otherwise has the values of the context that the hold was given.
func (c *holdContext) Value(key any) any {
	h := c.hold()
	if Searches(key) {
		if h.Answers(key) {
			return h
		}
		return h.given.Value(key)
	}
	// The cause of an ended context is found by a value of package context's own.
	h.lease.mu.Lock()
	ended, inner, cause := h.over || h.cause != nil, h.inner, h.cause
	h.lease.mu.Unlock()
	switch {
	case inner != nil && cause != nil && inner.Err() == nil: // it is about to be cancelled: Err says so already
		now, cancel := context.WithCancelCause(h.given)
		cancel(cause)
		return now.Value(key)
	case inner != nil:
		return inner.Value(key)
	case ended:
		return h.materialize().Value(key)
	}
	return h.given.Value(key)
}

// materialize returns the context that the hold's context is made of.
func (h *Hold) materialize() context.Context {
	h.lease.mu.Lock()
	made := h.inner
	h.lease.mu.Unlock()
	if made != nil {
		return made
	}
	inner, cancel := context.WithCancelCause(h.given) // not under the mutex: the given context is the user's
	h.lease.mu.Lock()
	if h.inner != nil {
		made = h.inner
		h.lease.mu.Unlock()
		cancel(nil)
		return made
	}
	h.inner, h.cancel = inner, both(cancel, h.cancel)
	if h.over && h.cause == nil {
		h.cause = h.lease.unlocked(h)
	}
	cause := h.cause
	h.lease.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
	return inner
}

// endContextLocked ends the context. The result, which may be nil, is to be called without the mutex.
func (h *Hold) endContextLocked(cause error) func() {
	if h.cause != nil {
		return nil
	}
	h.cause = cause
	if h.cancel == nil {
		return nil
	}
	cancel := h.cancel
	return func() { cancel(cause) }
}

// separate makes the context of a nested level, which does not end with the release of an outer one. A deadline of
// the given context holds by itself, so that it ends as a deadline does.
func separate(given context.Context) (context.Context, context.CancelCauseFunc) {
	base := context.WithoutCancel(given)
	stop := func() {}
	if deadline, ok := given.Deadline(); ok {
		base, stop = context.WithDeadline(base, deadline)
	}
	inner, cancel := context.WithCancelCause(base)
	context.AfterFunc(inner, stop)
	return inner, cancel
}

// NestContext returns a context for a level inside another: it does not end with the release of an outer level, of which
// within tells.
func NestContext(given context.Context, within func(Level) bool) (context.Context, context.CancelCauseFunc) {
	inner, cancel := separate(given)
	follow(given, follower{inner: inner, cancel: cancel, within: within})
	return inner, cancel
}

// follower is the context of a nested level.
type follower struct {
	inner  context.Context //nolint:containedctx // it is what is to be ended
	cancel context.CancelCauseFunc
	within func(Level) bool // whether the level is inside another
}

// follow ends the context of a nested level with the context that it was given, unless that one ended only because an
// outer level was released: then with the context which that level was given.
func follow(given context.Context, f follower) {
	stop := context.AfterFunc(given, func() { f.givenEnded(given) })
	context.AfterFunc(f.inner, func() { stop() })
}

func (f follower) givenEnded(given context.Context) {
	if _, ok := given.Deadline(); ok && errors.Is(given.Err(), context.DeadlineExceeded) {
		return // the level's own context has the same deadline
	}
	cause := context.Cause(given)
	var e *endCause
	if !errors.As(cause, &e) || e.level == nil || !f.within(e.level) {
		f.cancel(cause)
		return
	}
	follow(e.level.Given(), f)
}

// within reports whether other is, or has among its parts, an outer level of h.
func (h *Hold) within(other Level) bool {
	for o := h.outer; o != nil; o = o.outer {
		if other.Covers(o) {
			return true
		}
	}
	return false
}

// Lineage is the key under which a context is searched for a hold that is made of several.
type Lineage struct{ Of any }

// Detach returns a context like ctx through which no lock is re-entered.
func Detach(ctx context.Context) context.Context {
	if ctx == nil {
		return nil // for the lock to refuse
	}
	return detached{ctx}
}

type detached struct {
	context.Context //nolint:containedctx // a context made of another
}

func (d detached) Value(key any) any {
	switch key.(type) {
	case Searcher, Lineage:
		return nil
	}
	return d.Context.Value(key)
}
