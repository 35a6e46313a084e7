package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// nest adds a level to a live hold from which ctx descends.
func (n *Name) nest(ctx context.Context, outer *lease.Hold, o *Options, p Patience) (*lease.Hold, error) {
	mode := n.manager.mode
	if mode == lease.Write && !outer.Exclusive() {
		return nil, errs.ErrUpgrade
	}
	if o.NoNest {
		return nil, errs.ErrHeld
	}
	return bounded(ctx, o, p, lease.CallLimit(n.manager.core), func(wait context.Context) (*lease.Hold, error) {
		return outer.Nest(ctx, wait, o.Term, mode)
	})
}

// bounded calls fn, which waits for nobody but Redis, under a context that ends when the wait is over, or after the limit for a call
// that does not wait.
func bounded(ctx context.Context, o *Options, p Patience, limit time.Duration, fn func(wait context.Context) (*lease.Hold, error)) (*lease.Hold, error) {
	wait, stop := ctx, context.CancelFunc(func() {})
	switch {
	case o.Wait != nil && *o.Wait > 0:
		wait, stop = context.WithTimeout(ctx, *o.Wait)
	case p == Once || o.Wait != nil: // it does not wait for others, but has to hear from Redis
		wait, stop = context.WithTimeout(ctx, limit)
	}
	defer stop()
	hold, err := fn(wait)
	if err == nil || wait.Err() == nil || ctx.Err() != nil || errors.Is(err, errs.ErrNotAcquired) {
		return hold, err
	}
	if o.Wait != nil && *o.Wait > 0 { // nobody but Redis was waited for
		return nil, fmt.Errorf("%w: %w", errs.ErrNotAcquired, errs.ErrUnavailable)
	}
	return nil, lease.ErrNoAnswer
}
