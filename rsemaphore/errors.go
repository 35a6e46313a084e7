package rsemaphore

import "github.com/redlatch/redlatch/internal/errs"

// The errors of semaphores. They come wrapped with what was being done; test them with errors.Is.
var (
	// ErrOverRelease is returned by Release of a [Semaphore] with WithMax when more permits would be available than that.
	ErrOverRelease = errs.ErrOverRelease
	// ErrNotAcquired is returned when a [PermitSemaphore] had no permit to give until the wait was over, or, with WithWait, Redis
	// did not answer in time.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrNotHeld is returned by Release and Extend of a [Permit] that has ended already. It is the cause of a nil permit's context.
	ErrNotHeld = errs.ErrNotHeld
	// ErrLost is returned by Extend, and is the cause of a [Permit]'s context, when the permit was lost: its lease ended, it was taken
	// away, or Redis could not be reached in time.
	ErrLost = errs.ErrLost
	// ErrUnlocked is the cause of a [Permit]'s context after Release. No method returns it.
	ErrUnlocked = errs.ErrUnlocked
)
