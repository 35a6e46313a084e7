package lease

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redlatch/redlatch/internal/errs"
)

// Unlocker is a hold as the public packages show it.
type Unlocker interface {
	Context() context.Context
	Unlock(ctx context.Context) error
}

// During runs fn under a hold's context and unlocks, also when fn panics. It returns fn's error, joined with why the hold was
// lost; title and name are those of the lock. A release that Redis did not answer, or refused, is no error of fn's work: it is logged.
func During(ctx context.Context, h Unlocker, fn func(context.Context) error, title, name string, logger *slog.Logger) (err error) {
	defer func() {
		released := h.Unlock(ctx)
		cause := context.Cause(h.Context())
		switch {
		case errors.Is(released, errReleased):
			released = errs.Wrap(title, "do", name, errs.ErrClosed)
		case released == nil || errors.Is(released, errs.ErrWrongType):
		case !errors.Is(released, errs.ErrNotHeld): // it was held: the loss in the context is that of an outer hold
			logger.Warn("redlatch: a lock was not released", "kind", title, "name", name, "error", released)
			released = nil
		case errors.Is(cause, errs.ErrLost) && !errors.Is(context.Cause(ctx), cause): // its own
			released = cause
		default: // nobody else can have unlocked it: Redis had lost it already
			released = errs.Wrap(title, "do", name, errs.ErrLost)
		}
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	return fn(h.Context())
}
