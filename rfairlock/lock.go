package rfairlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/fair"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

// Lock is a reentrant lock that is granted first come, first served. [Lock.Lock] waits, [Lock.TryLock] does not,
// [Lock.Do] runs a function and then releases the lock. A Lock has no state: any number of goroutines may use one, and
// two of the same name from one client are the same lock. It is safe for concurrent use.
type Lock struct {
	sealed
	name  locker.Name
	core  *core.Core
	locks *fair.Locks
}

type sealed = locker.Sealed // embedded: makes a lock a rlock.Locker

var _ rlock.Locker = (*Lock)(nil)

// New returns the fair lock with this name, as client.GetFairLock does. client is a *redlatch.Client. It does no I/O
// and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string) *Lock {
	c := core.Of(client)
	locks := core.Manager(c, fair.NewLocks)
	l := &Lock{name: locks.Plain.Name(name), core: c, locks: locks}
	l.sealed = locker.Seal(&l.name)
	return l
}

// Name returns the lock's name as it was given to the client.
func (l *Lock) Name() string { return l.name.User() }

// Lock acquires the lock once all earlier waiters have acquired and released it or left the queue. If ctx descends from
// the context of a live hold of this lock, the call adds a level to that hold and does not wait; any other context
// queues. Goroutines that use the same hold context re-enter the lock, so it does not exclude them from one another:
// use [rlock.Detach] in a goroutine that must compete, or [rlock.WithoutReentry].
//
// It blocks until the lock is acquired, ctx is done, the time of [rlock.WithWait] is over ([rlock.ErrNotAcquired]), the
// client closes (redlatch.ErrClosed), or an error occurs that will not pass, such as a missing permission; on the first
// attempt also a refused connection. It retries other connection errors, and what Redis cannot do at the moment (it is
// loading or failing over), for one lease in a row. If another kind of object uses the name, it returns
// redlatch.ErrWrongType. After an error the lock is not held, and the call has lost its place in the queue; what an
// attempt may have been granted is released in the background.
//
// The lease is the client's, 30 s by default, and is renewed until Unlock; see [rlock.WithFixedLease]. A deadline of ctx
// ends the hold's context too: use [rlock.WithWait] to limit only the wait.
//
// A free lock costs one round trip. A waiter costs one more when it is its turn, and a share of one call that the
// client makes for all its waiters about once a second.
func (l *Lock) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "lock", locker.Forever, opts)
}

// TryLock tries once to acquire the lock, and returns [rlock.ErrNotAcquired] if it is held or others wait for it. With
// [rlock.WithWait] it queues for that time. It nests and fails as Lock does. If the outcome of the attempt is unknown,
// it returns redlatch.ErrUnknown, and the attempt is taken back in the background.
//
// Without a wait it costs one round trip, or none if this client itself holds the lock. It ends with ctx, or after the
// call timeout if ctx has no deadline (see redlatch.WithCallTimeout).
func (l *Lock) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "try lock", locker.Once, opts)
}

// Do acquires the lock as Lock does, runs fn under the hold's context, and releases the lock, also if fn panics. With
// rlock.WithWait(0) it runs fn now or not at all. It returns what fn returned, joined with [rlock.ErrLost] if the lock
// was lost meanwhile. A release that was not answered is logged and is no error of Do.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	if fn == nil {
		return wrap("do", l.Name(), fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	h, err := l.acquire(ctx, "do", locker.Forever, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, h, fn, kinds.FairLock, l.Name(), l.core.Logger)
}

// IsLocked reports whether anyone holds the lock. It blocks and fails as [rlock.Lock.IsLocked] does, and costs one
// round trip.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	s, err := l.name.Inspect(ctx)
	return s.Locked, wrap("is locked", l.Name(), err)
}

// HoldCount returns how many levels Redis counts for the hold that ctx descends from. It returns 0 without asking Redis
// if ctx descends from none. Otherwise it blocks and fails as IsLocked does, and costs one round trip.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	levels, err := l.name.HoldCount(ctx)
	return levels, wrap("hold count", l.Name(), err)
}

// TTL returns how much of the lease is left in Redis: 0 if the lock is free, negative if the key has no TTL, which
// neither redlatch nor Redisson leaves behind. It blocks and fails as IsLocked does, and costs one round trip.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	s, err := l.name.Inspect(ctx)
	return s.Left, wrap("ttl", l.Name(), err)
}

// ForceUnlock releases the lock whoever holds it, wakes the next waiter, and reports whether anyone held it. It is for
// operators: it breaks exclusion until the holder notices. A holder in this client notices at once; a holder elsewhere,
// and one that is being renewed at the moment, at its next renewal. It blocks, fails and costs as
// [rlock.Lock.ForceUnlock] does.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	forced, err := l.name.Force(ctx, func() *script.Call { return l.locks.Force(l.name.Key()) })
	return forced, wrap("force unlock", l.Name(), err)
}

func (l *Lock) acquire(ctx context.Context, verb string, p locker.Patience, opts []rlock.Option) (*rlock.Hold, error) {
	o, err := locker.Collect(opts)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	h, err := l.name.Acquire(ctx, o, p)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	return (*rlock.Hold)(hold.Acquired(ctx, l.core, o, fair.Title, h)), nil
}

func wrap(verb, name string, err error) error { return errs.Wrap(fair.Title, verb, name, err) }
