package rexecutor

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// The errors of executors, in addition to those of package redlatch. They come wrapped with what was being done; test them with
// errors.Is, and a [TaskError] with errors.As.
var (
	// ErrNotFound is returned for a task that is not there: it was never submitted, its result is over, nobody wanted one, or Redis has lost
	// it.
	ErrNotFound = errs.ErrNotFound
	// ErrCancelled is returned for a task that was cancelled, and is the cause of its handler's context.
	ErrCancelled = queue.ErrCancelled
	// ErrExpired is returned for a task that was not begun within the time of [WithExpiry].
	ErrExpired = queue.ErrExpired
	// ErrFull is returned by Submit and Send for which an executor with [WithCapacity] has no room.
	ErrFull = queue.ErrFull
	// ErrTimeout is the cause of a handler's context after the time of [WithTimeout]. No method returns it.
	ErrTimeout = errs.ErrTimeout
	// ErrLost is the cause of a handler's context if its claim is over: another worker may have the task. No method returns it.
	ErrLost = errs.ErrLost
	// ErrStopped is the cause of a handler's context if [Executor.Work] ends and the grace of [WithStopGrace] is over. No method returns it.
	ErrStopped = queue.ErrStopped
	// ErrDead is returned by Send with the id of a task that has failed for good: redrive that, or cancel it and send again.
	ErrDead = queue.ErrDead
	// ErrLayout is returned for an executor that a newer version of this library has written.
	ErrLayout = queue.ErrLayout
)

// TaskError is the error of a task that has failed for good.
type TaskError struct {
	// Text is the text of the error of its last attempt, up to 4 KiB.
	Text string
	// Attempts is how many there were. A task that had fewer than [WithMaxAttempts] allows was rejected, see [Reject].
	Attempts int
}

// Error returns the text, and how many attempts there were.
func (e *TaskError) Error() string {
	if e.Attempts == 1 {
		return "task failed: " + e.Text
	}
	return fmt.Sprintf("task failed at attempt %d: %s", e.Attempts, e.Text)
}
