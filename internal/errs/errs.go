// Package errs declares the errors that several packages return. Each public package names those that it returns, so
// that errors.Is finds one value behind every door.
package errs

import "errors"

var (
	// Invalid marks bad arguments, found before any I/O.
	Invalid = errors.New("invalid argument")
	// Closed marks calls on a closed client, and is the cause of the contexts that Close ends.
	Closed = errors.New("client closed")
	// Unknown marks an operation whose outcome is not known; it is being settled in the background.
	Unknown = errors.New("outcome unknown")
	// WrongType marks a name that is held by another kind of object.
	WrongType = errors.New("name is used by another kind of object")
	// NotAcquired marks a try that found the lock taken until its wait was over.
	NotAcquired = errors.New("lock not acquired")
	// NotHeld marks an operation on a hold that has ended.
	NotHeld = errors.New("lock not held")
	// Lost marks a hold that ended without its holder's doing.
	Lost = errors.New("lock lost")
	// Held marks a call that would nest although it must not.
	Held = errors.New("lock held by this context already")
	// Unlocked is the cause of a context whose hold was unlocked.
	Unlocked = errors.New("lock released")
)
