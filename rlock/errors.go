package rlock

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// The errors of all kinds of lock. They come wrapped with what was being done; test them with errors.Is.
var (
	// ErrNotAcquired is returned by TryLock, and by Lock and Do with [WithWait], if the lock could not be acquired within
	// the wait time. It is joined with redlatch.ErrUnavailable if Redis did not answer, so that nobody knows whether the
	// lock is free.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrNotHeld is returned by Unlock and Extend if the hold has already ended. It is the cause of a nil hold's context.
	ErrNotHeld = errs.ErrNotHeld
	// ErrLost is returned by Extend and Do, and is the cause of a hold's context, if the lock was lost: its lease ended,
	// it was taken away, or Redis could not be reached in time.
	ErrLost = errs.ErrLost
	// ErrHeld is returned for a call with [WithoutReentry] under the context of a live hold of the same lock.
	ErrHeld = errs.ErrHeld
	// ErrUnlocked is the cause of a hold's context after Unlock. No method returns it.
	ErrUnlocked = errs.ErrEnded
)

// TakenError is the [ErrNotAcquired] of a call with [WithHolder]. Find it with errors.As.
type TakenError struct {
	// Info is what Redis said of the lock when the call had given up; its Locked is false if nobody held it: it had been
	// released just then, or it was another waiter's turn.
	Info Info
	err  error
}

// Error says who holds the lock.
func (e *TakenError) Error() string {
	if !e.Info.Locked {
		return e.err.Error() + ": nobody holds it now"
	}
	left := "a lease without end"
	if e.Info.Left >= 0 {
		left = e.Info.Left.Round(time.Millisecond).String() + " of its lease left"
	}
	return fmt.Sprintf("%v: %q is held by %q, with %s", e.err, e.Info.Name, e.Info.Owner, left)
}

// Unwrap returns the error without the holder.
func (e *TakenError) Unwrap() error { return e.err }
