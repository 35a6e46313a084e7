package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/reentrant"
	"github.com/redlatch/redlatch/internal/script"
)

// Locker is the interface of all kinds of lock, and of the members of a multi-lock. It has an unexported method: to
// decorate a lock, keep one in a field of a type of your own instead of implementing Locker.
type Locker interface {
	// Name returns the lock's name.
	Name() string
	// Lock blocks until the lock is acquired or ctx is done.
	Lock(ctx context.Context, opts ...Option) (*Hold, error)
	// TryLock tries once, or for as long as WithWait says.
	TryLock(ctx context.Context, opts ...Option) (*Hold, error)
	// Do runs fn while holding the lock.
	Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error

	locker.Locker // unexported: only this module's kinds of lock are Lockers
}

type sealed = locker.Sealed // embedded: makes a lock a Locker

// Lock is a reentrant lock. [Lock.Lock] waits, [Lock.TryLock] does not, [Lock.Do] runs a function and then releases the
// lock. A Lock has no state: any number of goroutines may use one, and two of the same name from one client are the
// same lock. It is safe for concurrent use.
type Lock struct {
	sealed
	name locker.Name
	core *core.Core
}

var _ Locker = (*Lock)(nil)

// New returns the reentrant lock with this name, as client.GetLock does. client is a *redlatch.Client. It does no I/O
// and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string) *Lock {
	c := core.Of(client)
	return newLock(c, core.Manager(c, reentrant.NewLocks).Plain, name)
}

// NewFenced returns the lock with this name whose holds carry a fencing token, as client.GetFencedLock does. client is
// a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of every method.
func NewFenced(client core.Client, name string) *Lock {
	c := core.Of(client)
	return newLock(c, core.Manager(c, reentrant.NewLocks).Fenced, name)
}

func newLock(c *core.Core, m *locker.Manager, name string) *Lock {
	l := &Lock{name: m.Name(name), core: c}
	l.sealed = locker.Seal(&l.name)
	return l
}

// Name returns the lock's name as it was given to the client.
func (l *Lock) Name() string { return l.name.User() }

// Lock acquires the lock. If ctx descends from the context of a live hold of this lock, the call adds a level to that
// hold and does not wait; any other context competes. Goroutines that use the same hold context re-enter the lock, so
// it does not exclude them from one another: use [Detach] in a goroutine that must compete, or [WithoutReentry].
//
// It blocks until the lock is acquired, ctx is done, the time of [WithWait] is over ([ErrNotAcquired]), the client
// closes (redlatch.ErrClosed), or an error occurs that will not pass, such as a missing permission; on the first
// attempt also a refused connection. It retries other connection errors, and what Redis cannot do at the moment (it is
// loading or failing over), for one lease in a row. If another kind of object uses the name, it returns
// redlatch.ErrWrongType. After an error the lock is not held; what an attempt may have been granted is released in the
// background.
//
// The lease is the client's, 30 s by default, and is renewed until Unlock; see [WithFixedLease]. A deadline of ctx ends the
// hold's context too: use [WithWait] to limit only the wait.
//
// A free lock costs one round trip. A waiter costs one more for each release, and about one a second.
func (l *Lock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "lock", locker.Forever, opts)
}

// TryLock tries once to acquire the lock, or for as long as [WithWait] says, and returns [ErrNotAcquired] if the lock
// is taken. It nests as Lock does. If the outcome of the attempt is unknown, it returns redlatch.ErrUnknown, and the
// attempt is taken back in the background. If ctx ends before Redis has answered, the error of ctx is joined with
// redlatch.ErrUnavailable, and where it nests with redlatch.ErrUnknown. A call that nests and waits for another call on
// the same hold has sent nothing yet: then it returns the error of ctx alone.
//
// Without a wait it costs one round trip, or none if this client itself holds the lock. It ends with ctx, or after the
// call timeout if ctx has no deadline (see redlatch.WithCallTimeout). One that nests ends with ctx, or after 3 s or the
// call timeout, whichever is less.
func (l *Lock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "try lock", locker.Once, opts)
}

// Do acquires the lock as Lock does, runs fn under the hold's context, and releases the lock, also if fn panics. With
// WithWait(0) it runs fn now or not at all. It returns what fn returned, joined with [ErrLost] if the lock was lost
// meanwhile. A release that was not answered is logged and is no error of Do.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	if fn == nil {
		return wrap("do", l.Name(), fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	h, err := l.acquire(ctx, "do", locker.Forever, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, h, fn, kinds.Lock, l.Name(), l.core.Logger)
}

// IsLocked reports whether anyone holds the lock.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. A closed client returns redlatch.ErrClosed, a name that another kind of
// object uses redlatch.ErrWrongType. It costs one round trip.
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

// ForceUnlock releases the lock whoever holds it, and reports whether anyone did. It is for operators: it breaks
// exclusion until the holder notices. A holder in this client notices at once; a holder elsewhere, and one that is
// being renewed at the moment, at its next renewal.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and for about 3 s at most; in a cluster, for the ReadTimeout and the dials of the cluster client. It is sent only
// once, since a repetition could release the next holder. If ctx ends first, and after redlatch.ErrUnknown, the lock
// may have been released, or may still be. A closed client returns redlatch.ErrClosed, a name that another kind of
// object uses redlatch.ErrWrongType. It costs one round trip.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	forced, err := l.name.Force(ctx, func() *script.Call { return reentrant.Force(l.name.Key()) })
	return forced, wrap("force unlock", l.Name(), err)
}

func (l *Lock) acquire(ctx context.Context, verb string, p locker.Patience, opts []Option) (*Hold, error) {
	o, err := locker.Collect(opts)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	h, err := l.name.Acquire(ctx, o, p)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	return (*Hold)(hold.Acquired(ctx, l.core, o, "rlock", h)), nil
}

func wrap(verb, name string, err error) error { return errs.Wrap("rlock", verb, name, err) }
