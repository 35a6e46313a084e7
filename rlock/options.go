package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
)

// Option is a setting of one acquiring call.
type Option interface{ setting }

type setting = locker.Option // embedded: only this package makes options

// WithFixedLease fixes the lease at d, 10 ms to 24 h. The hold is not renewed, and is lost when d has passed. Without
// WithFixedLease the lease is the client's, 30 s by default, or that of [WithRenewedLease], and is renewed until Unlock.
func WithFixedLease(d time.Duration) Option {
	return locker.Set(func(o *locker.Options) { o.Lease = &d })
}

// WithRenewedLease sets the lease of a hold that is renewed to d, 10 ms to 24 h: of which a third passes between two
// renewals, and after which the lock is free if this process dies. Without it the lease is the client's, see
// redlatch.WithWatchdogTimeout. The levels of a hold share one lease, the longest that any of them has asked for, until the
// last one is unlocked. Together with [WithFixedLease] it is redlatch.ErrInvalid.
func WithRenewedLease(d time.Duration) Option {
	return locker.Set(func(o *locker.Options) { o.Renewed = &d })
}

// WithReleaseOnDone releases the lock when the context that was given to the call is done, and leaves nothing to Unlock: for
// work that is surely over by then. The hold's context ends at once, with the cause of the context, and the release
// follows: an Unlock that comes before it is the release and returns nil, a later one returns [ErrNotHeld]. A defer is right
// in any case. The context
// of [Detach] is done with the one that it was made of. A nested level is released with the context that its own call was
// given; the release of an outer level does not end it. Do returns the cause, joined with what its function returned, since
// that may have gone on without the lock. A release that Redis did not answer goes on in the background; one that it refused
// is logged.
func WithReleaseOnDone() Option {
	return locker.Set(func(o *locker.Options) { o.ReleaseOnDone = true })
}

// WithWait limits the wait to d, from 0 to ten years. A call that has not acquired the lock by then returns
// [ErrNotAcquired]. With 0 it tries once: Do with WithWait(0) runs its function now or not at all. Without WithWait,
// Lock and Do wait without limit, and TryLock does not wait.
func WithWait(d time.Duration) Option { return locker.Set(func(o *locker.Options) { o.Wait = &d }) }

// WithMaxHold limits renewal: the hold is lost d after it was acquired. From 10 ms to ten years. Without WithMaxHold
// there is no limit. It has no effect with a shorter [WithFixedLease].
func WithMaxHold(d time.Duration) Option {
	return locker.Set(func(o *locker.Options) { o.MaxHold = &d })
}

// WithTakeOver takes the lock over from an earlier hold whose [Hold.Owner] the caller has saved, so that a service that
// restarts need not wait for the lease of its earlier process. If that owner holds the lock, the lock passes to the new
// hold in one step: it has one level, a fenced lock's token rises, and the context of the earlier hold ends with
// [ErrLost]: in this client at once, elsewhere, if its process still runs, at its next renewal or the end of a [WithFixedLease].
// Otherwise, and if the call nests, it is an ordinary acquisition. Holds that were handed on within a client share an
// owner id: the lock is taken from the one that holds it now, whichever of them the id was saved from.
//
// It applies to reentrant, fenced, fair and write locks. Read locks, multi-locks and RedLocks return
// redlatch.ErrInvalid, and so does a string that is no owner id: 1 to 64 ASCII letters, digits, dots, hyphens and
// underscores, a colon, and a number without leading zeros, below 2^64. That of a Java thread is one.
func WithTakeOver(owner string) Option {
	return locker.Set(func(o *locker.Options) { o.TakeOver = &owner })
}

// WithoutReentry makes a call that would nest return [ErrHeld].
func WithoutReentry() Option { return locker.Set(func(o *locker.Options) { o.NoNest = true }) }

// WithHolder makes the call's [ErrNotAcquired] a [*TakenError], which says who holds the lock. A refused call then asks Redis
// for it, as Info does, for at most a second: of several readers for the one that keeps the lock longest, of the parts of a
// multi-lock for the first that is held. Without an answer the error is as it is otherwise. A call that acquires the lock costs
// nothing more.
func WithHolder() Option { return locker.Set(taken) }

func taken(o *locker.Options) {
	o.Taken = func(i locker.Info, err error) error { return &TakenError{Info: Info(i), err: err} }
}

// Detach returns a context like ctx, with its values, deadline and cancellation, under which no lock is re-entered. Use
// it in a goroutine that received a hold's context and must compete for the lock.
func Detach(ctx context.Context) context.Context { return lease.Detach(ctx) }
