// Package errs declares the errors that several packages return. Each public package names those that it returns, so
// that errors.Is finds one value behind every door.
package errs

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid marks bad arguments, found before any I/O.
	ErrInvalid = errors.New("invalid argument")
	// ErrClosed marks calls on a closed client, and is the cause of the contexts that Close ends.
	ErrClosed = errors.New("client closed")
	// ErrUnknown marks an operation whose outcome is not known; it is being settled in the background.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable marks a call that Redis did not answer in time, or refused for now: nothing was done.
	ErrUnavailable = errors.New("redis unavailable")
	// ErrWrongType marks a name that is held by another kind of object.
	ErrWrongType = errors.New("name is used by another kind of object")
	// ErrNotAcquired marks a try that found the lock taken until its wait was over.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrNotHeld marks an operation on a hold that has ended.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost marks a hold that ended without its holder's doing.
	ErrLost = errors.New("lock lost")
	// ErrHeld marks a call that would nest although it must not.
	ErrHeld = errors.New("lock held by this context already")
	// ErrOverRelease marks a release of more permits than a semaphore may have.
	ErrOverRelease = errors.New("more permits released than the semaphore may have")
	// ErrUpgrade marks a call for the write lock by who has but the read lock.
	ErrUpgrade = errors.New("a reader cannot become the writer")
	// ErrUnlocked is the cause of a context whose hold was unlocked.
	ErrUnlocked = errors.New("lock released")
)

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
