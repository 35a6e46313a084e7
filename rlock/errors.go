package rlock

import "github.com/redlatch/redlatch/internal/errs"

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
	ErrUnlocked = errs.ErrUnlocked
)
