package rsemaphore

import "github.com/redlatch/redlatch/internal/errs"

// The errors of semaphores. They come wrapped with what was being done; test them with errors.Is.
var (
	// ErrOverRelease is returned by Release of a [Semaphore] with [WithMax] if more permits than that would be
	// available.
	ErrOverRelease = errs.ErrOverRelease
	// ErrNotAcquired is returned by a [PermitSemaphore] if no permit became available within the wait time. It is
	// joined with redlatch.ErrUnavailable if Redis did not answer.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrNotHeld is returned by Release and Extend if the [Permit] has already ended. It is the cause of a nil permit's
	// context.
	ErrNotHeld = errs.ErrNotHeld
	// ErrLost is returned by Extend, and is the cause of a [Permit]'s context, if the permit was lost: its lease ended,
	// it was taken away, or Redis could not be reached in time.
	ErrLost = errs.ErrLost
	// ErrUnlocked is the cause of a [Permit]'s context after Release. No method returns it. It is rlock.ErrUnlocked.
	ErrUnlocked = errs.ErrEnded
)
