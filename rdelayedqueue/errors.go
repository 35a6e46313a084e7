package rdelayedqueue

import (
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// The errors of delayed queues, in addition to those of package redlatch. They come wrapped with what was being done;
// test them with errors.Is.
var (
	// ErrNotHeld is returned by Ack, Nack, Reject, Snooze and Extend if the claim is no longer the message's latest: another
	// consumer claimed the message, it was removed, or its attempt already ended in another way. It is the cause of a
	// nil message's context. It is rlock.ErrNotHeld.
	ErrNotHeld = errs.ErrNotHeld
	// ErrLost is the cause of a message's context if its visibility is over or another consumer has claimed it. No
	// method returns it. It is rlock.ErrLost.
	ErrLost = errs.ErrLost
	// ErrNotFound is returned by Get if no message has the id.
	ErrNotFound = errs.ErrNotFound
	// ErrFinished is the cause of a message's context after Ack, Nack, Reject or Snooze. No method returns it. It is rlock.ErrUnlocked.
	ErrFinished = queue.ErrFinished
	// ErrTimeout is the cause of a handler's context after the time of [WithTimeout]. No method returns it.
	ErrTimeout = errs.ErrTimeout
	// ErrStopped is the cause of a handler's context if its consumer stops and the grace of [WithStopGrace] is over. No
	// method returns it.
	ErrStopped = queue.ErrStopped
	// ErrCancelled is the cause of a message's context if [Queue.Cancel] or [Queue.Purge] removed it in flight, or
	// Redis has lost it; then [ErrLost] is too. No method returns it.
	ErrCancelled = queue.ErrCancelled
	// ErrFull is returned by an offer for which a queue with [WithCapacity] has no room; it comes with the error of the context if that has
	// ended a wait for room.
	ErrFull = queue.ErrFull
	// ErrDead is returned by an offer with the id of a dead letter: [Queue.Redrive] that, or [Queue.Cancel] it and offer again.
	ErrDead = queue.ErrDead
	// ErrLayout is returned for a queue that a newer version of this library has written.
	ErrLayout = queue.ErrLayout
)
