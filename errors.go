package redlatch

import "github.com/redlatch/redlatch/internal/errs"

// The errors that objects of all kinds return. They come wrapped with what was being done; test them with errors.Is.
var (
	// ErrInvalid is returned for bad arguments and options, before any I/O.
	ErrInvalid = errs.ErrInvalid
	// ErrClosed is returned by calls on a closed client, and is the cause of the contexts that Close ends.
	ErrClosed = errs.ErrClosed
	// ErrUnknown is returned if Redis may or may not have done what was asked. What must not stay is undone in the
	// background.
	ErrUnknown = errs.ErrUnknown
	// ErrUnavailable is returned if Redis did not answer in time, refused the connection, or cannot serve at the moment
	// (it is loading, failing over, or moving keys): nothing was done, unless the error is ErrUnknown besides, and it is
	// unknown whether the object was free. A wait that ends like this joins it with rlock.ErrNotAcquired or the error of
	// the context.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnwritable is returned if Redis refuses writes: it is full (OOM), cannot save (MISCONF), is a replica (READONLY), or
	// has too few replicas (NOREPLICAS). It is an ErrUnavailable. What a replica or a lack of replicas refuses is tried again,
	// as a failover may be under way; the others end a call at once.
	ErrUnwritable = errs.ErrUnwritable
	// ErrNotConfirmed is returned if the master answered, but the replicas of [WithReplicas], or its disk with
	// [WithDurability], did not confirm in time. Locks and permits are released again, a block of ids is not used, and the
	// error is joined with ErrUnavailable. Anything else stays done, and is lost if the master fails before its replicas have it.
	ErrNotConfirmed = errs.ErrNotConfirmed
	// ErrNotListening is returned by [Client.Ask] if the client is gone, does not listen, does not listen yet, or does not answer.
	ErrNotListening = errs.ErrNotListening
	// ErrWrongType is returned if another kind of object, or foreign data, uses the name. A foreign hash cannot be told
	// from a lock, nor a foreign number from the count of a semaphore or latch.
	ErrWrongType = errs.ErrWrongType
	// ErrUnsupported is returned if the server is too old for a call: it lacks a command that the call needs, and nothing
	// was done.
	ErrUnsupported = errs.ErrUnsupported
	// ErrFenced is returned by a change with a fencing token if a higher one was seen before: a later holder of the lock has
	// changed the object, or has tried to. Nothing was done.
	ErrFenced = errs.ErrFenced
	// ErrConflict is returned by an Update if others were faster at each of its 20 tries. Nothing was done.
	ErrConflict = errs.ErrConflict
)
