package rrwlock

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
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

// Lock is a read-write lock. [Lock.Lock], [Lock.TryLock] and [Lock.Do] acquire it for writing, [Lock.RLock],
// [Lock.TryRLock] and [Lock.RDo] for reading. A Lock has no state: any number of goroutines may use one, and two of the
// same name from one client are the same lock, except for [WithoutWriterPreference]. It is safe for concurrent use.
type Lock struct {
	sealed
	write, read locker.Name
	core        *core.Core
	err         error // of the options
}

type sealed = locker.Sealed // embedded: makes a lock a rlock.Locker

var _ rlock.Locker = (*Lock)(nil)

// manager is a client's state for its read-write locks.
type manager struct {
	write, read *locker.Manager
	passing     *locker.Manager // of readers that enter while writers wait
}

func newManager(c *core.Core) *manager {
	ns := locker.NewNamespace(c)
	shared := common{core: c}
	return &manager{
		write:   locker.NewManager(ns, writeKind{shared}.locker()),
		read:    locker.NewManager(ns, readKind{common: shared, heeds: true, foreign: newForeign(c)}.locker()),
		passing: locker.NewManager(ns, readKind{common: shared}.locker()),
	}
}

// New returns the read-write lock with this name, as client.GetReadWriteLock does. client is a *redlatch.Client. It
// does no I/O and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string, opts ...Option) *Lock {
	c := core.Of(client)
	m := core.Manager(c, newManager)
	var o options
	err := option.Apply(opts, &o, Option.set)
	read := m.read
	if o.passes {
		read = m.passing
	}
	l := &Lock{write: m.write.Name(name), read: read.Name(name), core: c, err: err}
	l.sealed = locker.Seal(&l.write)
	return l
}

// Name returns the lock's name as it was given to the client.
func (l *Lock) Name() string { return l.write.User() }

// Lock acquires the write lock. It waits until the writer and all readers have released the lock, and holds back new
// readers while it waits. If ctx descends from the context of a live write hold of this lock, the call adds a level to
// that hold and does not wait. If it descends only from a live read hold, the call returns [ErrUpgrade] at once.
//
// It blocks until the lock is acquired, ctx is done, the time of [rlock.WithWait] is over ([rlock.ErrNotAcquired]), the
// client closes (redlatch.ErrClosed), or an error occurs that will not pass, such as a missing permission; on the first
// attempt also a refused connection. It retries other connection errors, and what Redis cannot do at the moment (it is
// loading or failing over), for one lease in a row. If another kind of object uses the name, it returns
// redlatch.ErrWrongType. After an error the lock is not held and the call no longer holds back readers; what an attempt
// may have been granted is released in the background.
//
// The lease is the client's, 30 s by default, and is renewed until Unlock; see [rlock.WithFixedLease]. A deadline of ctx
// ends the hold's context too: use [rlock.WithWait] to limit only the wait.
//
// A free lock costs one round trip. A waiter costs one more each time a writer or the last reader releases the lock,
// and about one a second.
func (l *Lock) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "lock", locker.Forever, opts)
}

// TryLock tries once to acquire the write lock, or for as long as [rlock.WithWait] says, and returns
// [rlock.ErrNotAcquired] if anyone else holds the lock. Without a wait it holds back no reader. It nests and fails as
// Lock does. If the outcome of the attempt is unknown, it returns redlatch.ErrUnknown, and the attempt is taken back in
// the background.
//
// Without a wait it costs one round trip, or none if this client itself holds the write lock. It ends with ctx, or
// after the call timeout if ctx has no deadline (see redlatch.WithCallTimeout).
func (l *Lock) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "try lock", locker.Once, opts)
}

// Do acquires the write lock as Lock does, runs fn under the hold's context, and releases the lock, also if fn panics.
// With [rlock.WithWait](0) it runs fn now or not at all. It returns what fn returned, joined with [rlock.ErrLost] if
// the lock was lost meanwhile. A release that was not answered is logged and is no error of Do.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	return l.do(ctx, "do", fn, opts, l.acquire)
}

// RLock acquires the read lock. It waits until the writer has released the lock, and by default until no writer waits;
// see [WithoutWriterPreference]. If ctx descends from the context of a live hold of this lock, the call adds a level to
// that hold and does not wait for others. Under a write hold it adds a read level, which survives the release of the
// write levels: this downgrades the lock.
//
// It blocks and fails as Lock does. [rlock.WithTakeOver] is redlatch.ErrInvalid.
//
// It costs one round trip if the lock is free or held by readers. A waiter costs one more each time a writer releases
// the lock or another waiter of its client acquires it. The waiter of a client that has waited longest costs about one
// a second, and ten while it waits for a writer of Redisson. While readers follow one another a client asks, beside
// their calls and at most about once a second for a lock, who listens for its release.
func (l *Lock) RLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquireShare(ctx, "read lock", locker.Forever, opts)
}

// TryRLock tries once to acquire the read lock, or for as long as [rlock.WithWait] says, and returns
// [rlock.ErrNotAcquired] if a writer holds the lock or holds back readers, one of Redisson for up to 5 s. It nests and
// fails as RLock does. If the outcome of the attempt is unknown, it returns redlatch.ErrUnknown, and the attempt is
// taken back in the background.
//
// Without a wait it costs one round trip, or none if readers of this client already wait. It ends with ctx, or after
// the call timeout if ctx has no deadline (see redlatch.WithCallTimeout).
func (l *Lock) TryRLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquireShare(ctx, "try read lock", locker.Once, opts)
}

// RDo acquires the read lock as RLock does, runs fn under the hold's context, and releases the lock, as Do does.
func (l *Lock) RDo(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	return l.do(ctx, "read do", fn, opts, l.acquireShare)
}

// RLocker returns a view of the lock whose Lock, TryLock and Do are RLock, TryRLock and RDo.
func (l *Lock) RLocker() rlock.Locker { return reader{l.sealed, l} }

// reader is the view of a lock that RLocker returns.
type reader struct {
	sealed
	lock *Lock
}

func (r reader) Name() string { return r.lock.Name() }

func (r reader) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return r.lock.RLock(ctx, opts...)
}

func (r reader) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return r.lock.TryRLock(ctx, opts...)
}

func (r reader) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	return r.lock.RDo(ctx, fn, opts...)
}

// IsLocked reports whether anyone holds the lock, for writing or reading. It blocks and fails as [rlock.Lock.IsLocked]
// does, and costs one round trip, and more where a crowd of readers has died, as for [Lock.Info].
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	info, err := l.inspect(ctx, inspectLock, "")
	return info.Locked, wrap("is locked", l.Name(), err)
}

// HoldCount returns how many levels Redis counts for the hold that ctx descends from, in the mode of that hold. It
// returns 0 without asking Redis if ctx descends from none. Otherwise it blocks and fails as IsLocked does, and costs
// one round trip.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	if ctx == nil {
		return 0, wrap("hold count", l.Name(), core.ErrNilContext)
	}
	hold := l.write.HoldOf(ctx)
	if hold == nil {
		return 0, wrap("hold count", l.Name(), l.check())
	}
	info, err := l.inspect(ctx, inspectLock, fieldOf(hold.Owner(), hold.Mode()))
	return info.levelsOf(hold.Owner(), hold.Mode()), wrap("hold count", l.Name(), err)
}

// TTL returns how long the lock stays held unless a hold is renewed: the rest of the writer's lease, or of the longest
// reader's, or what is left to the key if it has more than 100 readers, which may be longer. It returns 0 if the lock is free,
// and a negative number if the key has no TTL, which neither redlatch nor Redisson leaves behind. It blocks, fails and costs
// as IsLocked does.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	info, err := l.inspect(ctx, inspectLock, "")
	return info.Left, wrap("ttl", l.Name(), err)
}

// ForceUnlock releases the lock whoever holds it, the writer or all readers, and reports whether anyone did, readers that
// died without a release included. It is for operators: it breaks exclusion until the holders notice. A holder in this
// client notices at once; a holder elsewhere, and one that is being renewed at the moment, at its next renewal. It blocks,
// fails and costs as [rlock.Lock.ForceUnlock] does.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	if err := l.check(); err != nil {
		return false, wrap("force unlock", l.Name(), err)
	}
	forced, err := l.write.Force(ctx, func() *script.Call { return force(l.write.Key()) })
	return forced, wrap("force unlock", l.Name(), err)
}

// check returns the error of the name or the options.
func (l *Lock) check() error {
	if l.err != nil {
		return l.err
	}
	return l.write.Check()
}

func (l *Lock) acquire(ctx context.Context, verb string, p locker.Patience, opts []rlock.Option) (*rlock.Hold, error) {
	return l.collect(ctx, verb, opts, func(o *locker.Options) (*lease.Hold, error) {
		return l.write.Acquire(ctx, o, p)
	})
}

func (l *Lock) acquireShare(ctx context.Context, verb string, p locker.Patience, opts []rlock.Option) (*rlock.Hold, error) {
	return l.collect(ctx, verb, opts, func(o *locker.Options) (*lease.Hold, error) {
		return l.read.Acquire(ctx, o, p)
	})
}

func (l *Lock) collect(
	ctx context.Context, verb string, opts []rlock.Option, acquire func(*locker.Options) (*lease.Hold, error),
) (*rlock.Hold, error) {
	o, err := locker.Collect(opts)
	if err == nil {
		err = l.err
	}
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	h, err := acquire(o)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	return (*rlock.Hold)(hold.Acquired(ctx, l.core, o, title, h)), nil
}

func (l *Lock) do(
	ctx context.Context, verb string, fn func(context.Context) error, opts []rlock.Option,
	acquire func(context.Context, string, locker.Patience, []rlock.Option) (*rlock.Hold, error),
) error {
	if fn == nil {
		return wrap(verb, l.Name(), fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	h, err := acquire(ctx, verb, locker.Forever, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, h, fn, kinds.RWLock, l.Name(), l.core.Logger)
}

func wrap(verb, name string, err error) error { return errs.Wrap(title, verb, name, err) }
