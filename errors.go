package redlatch

import "github.com/redlatch/redlatch/internal/errs"

// The errors that objects of all kinds return. They come wrapped with what was being done; test them with errors.Is.
var (
	// ErrInvalid is returned for bad arguments and options, before any I/O, and by the zero value of an object.
	ErrInvalid = errs.ErrInvalid
	// ErrClosed is returned by calls on a closed client, and is the cause of the contexts that Close ended.
	ErrClosed = errs.ErrClosed
	// ErrUnknown is returned when Redis may or may not have done what was asked. It is being settled in the background.
	ErrUnknown = errs.ErrUnknown
	// ErrUnavailable is returned when Redis gave no answer in time, refused the connection, or said that it cannot serve just now (it is
	// loading, failing over, or moving keys): nothing was done, and nobody knows whether the thing was free. A wait that ends so
	// returns it joined with the error of its end: rlock.ErrNotAcquired, or the context's.
	ErrUnavailable = errs.ErrUnavailable
	// ErrWrongType is returned when another kind of object, or foreign data, uses the name. A hash of foreign data cannot be told from
	// a lock, nor a number from the count of a semaphore or latch.
	ErrWrongType = errs.ErrWrongType
)
