package queue

import (
	"errors"
	"fmt"
)

var (
	// ErrNotHeld marks an operation on a claim that is not the message's latest any more.
	ErrNotHeld = errors.New("message not held")
	// ErrLost is the cause of a message's context when its claim is gone.
	ErrLost = errors.New("message lost")
	// ErrFinished is the cause of a message's context after Ack, Nack or Reject.
	ErrFinished = errors.New("message finished")
	// ErrHandlerTimeout is the cause of a handler's context that took longer than it may.
	ErrHandlerTimeout = errors.New("handler took too long")
	// ErrStopped is the cause of a handler's context when the grace of a consumer that stops is over.
	ErrStopped = errors.New("consumer stopped")
	// ErrLayout marks a queue that a newer version of the library has written.
	ErrLayout = errors.New("the queue has a newer layout")
)

func newerLayout(version int64) error {
	return fmt.Errorf("%w: version %d, and this library knows %d", ErrLayout, version, layout)
}
