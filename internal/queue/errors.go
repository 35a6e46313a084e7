package queue

import (
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

var (
	// ErrNotHeld is [errs.ErrNotHeld] of a message: its claim is not the latest any more.
	ErrNotHeld = errs.Of("message", errs.ErrNotHeld)
	// ErrFinished is the cause of a message's context after Ack, Nack, Reject or Snooze.
	ErrFinished = errs.ErrEnded
	// ErrCancelled is the cause of a message's context if the message was cancelled in flight.
	ErrCancelled = errors.New("cancelled")
	// ErrStopped is the cause of a handler's context when the grace of a consumer that stops is over.
	ErrStopped = errors.New("stopped after its grace")
	// ErrFull is the error of an offer to a queue that has no room for it.
	ErrFull = errors.New("it is full")
	// ErrDead is the error of an offer with the id of a dead letter.
	ErrDead = errors.New("a dead letter has this id")
	// ErrExpired is the error of a task that was not begun in time.
	ErrExpired = errors.New("task expired")
	// ErrLayout marks a queue that a newer version of the library has written.
	ErrLayout = errors.New("it has a newer layout")
)

func newerLayout(version int64) error {
	return fmt.Errorf("%w: version %d, and this library knows %d", ErrLayout, version, layout)
}
