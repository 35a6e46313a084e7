package lease

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/errs"
)

// None is what a nil or a zero hold is made of: one that was never acquired.
type None struct{}

// Context returns a context that has ended, with the cause ErrNotHeld.
func (None) Context() context.Context { return engine.Ended(errs.ErrNotHeld) }

// Unlock returns ErrNotHeld.
func (None) Unlock(context.Context) error { return errs.ErrNotHeld }

// Extend returns ErrNotHeld.
func (None) Extend(context.Context, time.Duration) error { return errs.ErrNotHeld }

// Token returns 0.
func (None) Token() int64 { return 0 }

// Deadline returns the zero time, which is over.
func (None) Deadline() time.Time { return time.Time{} }

// Owner returns no id.
func (None) Owner() string { return "" }

// Name returns no name.
func (None) Name() string { return "" }
