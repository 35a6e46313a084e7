// Package hold is what a *rlock.Hold consists of. The kinds of lock make one of a hold of their own:
//
//	(*rlock.Hold)(hold.New(title, inside))
package hold

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// Inside is the inside of a hold: one lease, or those of several locks.
type Inside interface {
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

// Wrap says of an error what was being done to which lock.
func (h *Hold) Wrap(verb string, err error) error {
	title := "rlock"
	if h != nil && h.title != "" {
		title = h.title
	}
	return errs.Wrap(title, verb, h.Inside().Name(), err)
}
