// Package errs declares the errors that several packages return. Each public package exports those that it returns under its
// own name, so that errors.Is finds one value.
package errs

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrInvalid is for bad arguments, found before any I/O.
	ErrInvalid = errors.New("invalid argument")
	// ErrClosed is for calls on a closed client, and the cause of the contexts that Close ends.
	ErrClosed = errors.New("client closed")
	// ErrUnknown is for an operation whose outcome is unknown; it is settled in the background.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable is for a call that Redis did not answer in time, or refused for now; nothing was done.
	ErrUnavailable = errors.New("redis unavailable")
	// ErrUnwritable is for a call that Redis refused since it refuses writes.
	ErrUnwritable = fmt.Errorf("%w: it refuses writes", ErrUnavailable)
	// ErrNotConfirmed is for an operation that the master has answered, and that replicas or its disk did not confirm in time.
	ErrNotConfirmed = errors.New("not confirmed")
	// ErrWrongType is for a name that another kind of object uses.
	ErrWrongType = errors.New("name is used by another kind of object")
	// ErrNotAcquired is for a lock that could not be acquired within the wait time.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrNotHeld is for an operation on a hold that has ended.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost is for a hold that ended although nobody unlocked it.
	ErrLost = errors.New("lock lost")
	// ErrNotFound is for a message or a job that is not there.
	ErrNotFound = errors.New("not found")
	// ErrTimeout is the cause of the context of a handler that took longer than it may.
	ErrTimeout = errors.New("handler took too long")
	// ErrHeld is for a call that would nest but must not.
	ErrHeld = errors.New("lock already held by this context")
	// ErrOverRelease is for a release above the maximum of a semaphore.
	ErrOverRelease = errors.New("more permits released than the semaphore may have")
	// ErrUpgrade is for a reader that asks for the write lock.
	ErrUpgrade = errors.New("a reader cannot become the writer")
	// ErrNotListening is for a client that was asked and does not answer.
	ErrNotListening = errors.New("the client does not listen")
	// ErrEnded is the cause of a context whose hold, permit, leadership or message was ended by who had it, as by Unlock.
	ErrEnded = errors.New("ended by its holder")
	// ErrUnsupported is for a call that the server is too old for.
	ErrUnsupported = errors.New("the server is too old for this call")
	// ErrFenced is for a change with a token below one that was seen before.
	ErrFenced = errors.New("a later holder of the lock has been here")
	// ErrConflict is for an update that others outran at each of its tries.
	ErrConflict = errors.New("others changed it at every try")
)

// ErrNilOption is the [ErrInvalid] of an option that is nil.
var ErrNilOption = fmt.Errorf("%w: an option is nil", ErrInvalid)

// MaxName is the longest name that an object may have, in bytes, prefix included.
const MaxName = 512

// Wrap says what was being done: by which package, and to the object of which name, of which it shows no more than a
// name may have. A nil error stays nil.
func Wrap(title, verb, name string, err error) error {
	if err == nil {
		return nil
	}
	if len(name) > MaxName {
		name = name[:MaxName] + "…"
	}
	return fmt.Errorf("%s: %s %q: %w", title, verb, name, err)
}

// Between returns [ErrInvalid] for a duration that is shorter or longer than it may be.
func Between(what string, d, least, most time.Duration) error {
	if d < least {
		return fmt.Errorf("%w: %s %v is below %v", ErrInvalid, what, d, least)
	}
	if d > most {
		return fmt.Errorf("%w: %s %v is above %v", ErrInvalid, what, d, most)
	}
	return nil
}

// Within returns [ErrInvalid] for a number that is lower or higher than it may be.
func Within(what string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%w: %s %d is not between %d and %d", ErrInvalid, what, n, least, most)
	}
	return nil
}

// Of returns an error that says of a noun, such as a permit, what the error says of a lock.
func Of(noun string, err error) error {
	if err == nil || noun == "lock" || !strings.HasPrefix(err.Error(), "lock ") {
		return err
	}
	return &of{noun: noun, err: err}
}

type of struct {
	noun string
	err  error
}

func (o *of) Error() string { return o.noun + strings.TrimPrefix(o.err.Error(), "lock") }

func (o *of) Unwrap() error { return o.err }
