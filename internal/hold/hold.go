// Package hold is what a *rlock.Hold consists of. The kinds of lock make one of a hold of their own:
//
//	(*rlock.Hold)(hold.New(title, inside))
package hold

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
)

// Inside is the inside of a hold: one lease, or those of several locks.
type Inside interface {
	OnEnd(fn func(cause error)) // see [lease.Hold.OnEnd]
	Context() context.Context
	Unlock(ctx context.Context) error
	Extend(ctx context.Context, d time.Duration) error
	Token() int64
	ExpiresAt() time.Time
	Owner() string
	Name() string
}

// Hold is a hold of some kind of lock. A nil Hold has ended.
type Hold struct {
	inside Inside
	title  string
	done   atomic.Bool // it is released because its context was done
}

// New returns a hold; title is the package of its kind of lock, for messages.
func New(title string, inside Inside) *Hold { return &Hold{inside: inside, title: title} }

// Inside returns what [New] was given; a hold that has ended for a nil Hold.
func (h *Hold) Inside() Inside {
	if h == nil || h.inside == nil {
		return (*lease.Hold)(nil)
	}
	return h.inside
}

// Acquired returns the hold that a call with these options has acquired.
func Acquired(ctx context.Context, c *core.Core, o *locker.Options, title string, inside Inside) *Hold {
	h := New(title, inside)
	if o.ReleaseOnDone {
		context.AfterFunc(inside.Context(), func() { h.release(ctx, c) }) // the end of the hold ends it
	}
	return h
}

// release releases a hold whose context has ended, unless this side has ended it: by Unlock, a loss or Close.
func (h *Hold) release(ctx context.Context, c *core.Core) {
	var over atomic.Bool
	h.inside.OnEnd(func(error) { over.Store(true) })
	if over.Load() {
		return
	}
	h.done.Store(true)
	err := h.inside.Unlock(ctx)
	if err != nil && !errors.Is(err, errs.ErrNotHeld) {
		c.Logger.Warn("redlatch: a lock was not released", "kind", h.title, "name", h.inside.Name(), "owner", h.inside.Owner(), "cause", err)
	}
}

// Unlock is that of the inside. Its error says whether the hold was released because its context was done.
func (h *Hold) Unlock(ctx context.Context) error {
	err := h.Inside().Unlock(ctx)
	if h != nil && h.done.Load() && errors.Is(err, errs.ErrNotHeld) {
		return lease.ErrDone
	}
	return err
}

// Wrap says of an error what was being done to which lock.
func (h *Hold) Wrap(verb string, err error) error {
	title := "rlock"
	if h != nil && h.title != "" {
		title = h.title
	}
	return errs.Wrap(title, verb, h.Inside().Name(), err)
}
