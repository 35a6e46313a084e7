package rrwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

// Lock is a read-write lock: [Lock.Lock], [Lock.TryLock] and [Lock.Do] are the writer's, [Lock.RLock], [Lock.TryRLock] and [Lock.RDo]
// the readers'. It holds no state: any number of goroutines may share one, and two of the same name from one client are the same
// lock. It is safe for concurrent use.
type Lock struct {
	sealed
	write, read, beside lease.Name
	core                *core.Core
	err                 error // of the options
}

type sealed = lease.Member // embedded: what makes a lock a rlock.Locker

var _ rlock.Locker = (*Lock)(nil)

// manager is what a client knows of its read-write locks.
type manager struct {
	write, read, beside *lease.Space
	passing             *lease.Space // of readers that do not heed waiting writers
}

func newManager(c *core.Core) *manager {
	r := lease.NewRegistry(c)
	return &manager{
		write:   lease.NewSpace(r, writeKind{}),
		read:    lease.NewSpace(r, readKind{heeds: true}),
		passing: lease.NewSpace(r, readKind{}),
		beside:  lease.NewSpaceBeside(r, besideKind{}),
	}
}

// New returns the named lock. It is for the client: users call GetReadWriteLock there.
func New(c *core.Core, name string, opts ...Option) *Lock {
	m := core.Manager(c, newManager)
	var o options
	var err error
	for _, opt := range opts {
		if opt == nil {
			err = fmt.Errorf("%w: an option is nil", errs.ErrInvalid)
			continue
		}
		opt(&o)
	}
	read := m.read
	if o.passes {
		read = m.passing
	}
	l := &Lock{write: m.write.Name(name), read: read.Name(name), beside: m.beside.Name(name), core: c, err: err}
	l.sealed = lease.MemberOf(&l.write)
	return l
}

// Name returns the lock's name as it was given to the client.
func (l *Lock) Name() string { return l.write.User() }

// Lock acquires the write lock: it waits for the readers to leave and for the writer before, and from the first try on holds new
// readers back. Reentrancy follows ctx: where ctx descends from the context of a live write hold of this very lock, the call adds a
// level to that hold and does not wait. Where it descends from a live read hold alone, the call returns [ErrUpgrade] at once.
//
// It blocks until the lock is acquired, ctx is done, the wait of rlock.WithWait is over (rlock.ErrNotAcquired), the client closes
// (redlatch.ErrClosed), or an error that cannot pass, as [rlock.Lock.Lock] does. A name that another kind of object uses is
// redlatch.ErrWrongType. After an error the lock is not held, and the call holds no reader back any more: what was left unknown is
// taken back in the background.
//
// A free lock costs one round trip. A waiter costs one more each time that a writer, or the last reader, released the lock, and
// one about every second.
func (l *Lock) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "lock", false, opts)
}

// TryLock tries once to acquire the write lock, or for as long as rlock.WithWait says, and returns rlock.ErrNotAcquired when anybody
// else holds the lock. It nests, fails and holds as Lock does; without a wait it holds no reader back. A try whose outcome is not
// known returns redlatch.ErrUnknown.
//
// Without a wait it costs one round trip, or none when this client itself has the writer.
func (l *Lock) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "try lock", true, opts)
}

// Do acquires the write lock as Lock does, runs fn under the hold's context, and releases the lock, also if fn panics.
// With [rlock.WithWait](0) it runs fn now or not at all. It returns what fn returned, joined with [rlock.ErrLost] if
// the lock was lost meanwhile.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	return l.do(ctx, "do", fn, opts, l.acquire)
}

// RLock acquires the read lock: it waits for the writer, and for one that waits. Reentrancy follows ctx: where ctx descends from
// the context of a live hold of this very lock, the call does not wait. Under a read hold it adds a level to it. Under a write
// hold it adds a reader with a lease of its own, which goes on when the write hold is unlocked: the downgrade. It waits there only
// after a reply for the reader before was lost: until that is settled, for a lease and a few seconds at most. rlock.WithTakeOver is
// redlatch.ErrInvalid: a reader takes nothing over.
//
// It ends and fails as Lock does.
//
// It costs one round trip if the lock is free or shared. A waiter costs one more each time that a writer released the lock, or
// another waiter of its client was let in; the one that has waited longest in its client costs one about every second.
func (l *Lock) RLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquireShare(ctx, "read lock", false, opts)
}

// TryRLock tries once to acquire the read lock, or for as long as rlock.WithWait says, and returns rlock.ErrNotAcquired when a writer
// holds the lock or holds readers back, or after 3 s where RLock would go on waiting under a write hold. It nests, fails and holds
// as RLock does. A try whose outcome is not known returns
// redlatch.ErrUnknown.
//
// Without a wait it costs one round trip, or none when readers of this client wait.
func (l *Lock) TryRLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquireShare(ctx, "try read lock", true, opts)
}

// RDo acquires the read lock as RLock does, or not at all with rlock.WithWait(0), runs fn under the hold's context and releases the
// lock, as Do does.
func (l *Lock) RDo(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	return l.do(ctx, "read do", fn, opts, l.acquireShare)
}

// RLocker returns a view of the lock whose Lock, TryLock and Do are RLock, TryRLock and RDo.
func (l *Lock) RLocker() rlock.Locker { return reader{l.sealed, l} }

// reader is the lock as its readers see it.
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

// IsLocked reports whether anybody holds the lock, in either mode. It waits and fails as [rlock.Lock.IsLocked] does, and costs one round
// trip.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	left, _, err := l.inspect(ctx, "")
	return left != free, wrap("is locked", l.Name(), err)
}

// HoldCount returns how many levels Redis counts for the hold that ctx descends from, and only for those of its own mode; 0 if ctx
// descends from none. It waits and fails as IsLocked does, and costs one round trip, or none.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	if ctx == nil {
		return 0, wrap("hold count", l.Name(), core.ErrNilContext)
	}
	hold := l.write.HoldOf(ctx)
	if hold == nil {
		return 0, wrap("hold count", l.Name(), l.check())
	}
	field := hold.Owner()
	if l.write.OwnHoldOf(ctx) == hold {
		field += writeSuffix
	}
	_, levels, err := l.inspect(ctx, field)
	return levels, wrap("hold count", l.Name(), err)
}

// TTL returns how long the lock is held yet unless it is renewed, by the writer or by the longest of the readers: 0 when the lock is
// free, negative when it has no end, which neither redlatch nor Redisson leaves behind. It waits and fails as IsLocked does,
// and costs one round trip.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	left, _, err := l.inspect(ctx, "")
	if left == free {
		left = 0
	}
	return left, wrap("ttl", l.Name(), err)
}

// ForceUnlock releases the lock whoever holds it, the writer or all readers, and reports whether anybody did. A holder in this client
// hears of it at once, another one, and one that is just being renewed, at its next renewal at the latest. It is for operators: exclusion is
// broken until then.
//
// It waits for Redis until ctx is done, and for about 3 s at most (in a cluster as long as the client's own ReadTimeout and its dials take).
// It is sent once, since a second one would free whoever came after the first: when ctx ended first, and after redlatch.ErrUnknown, the lock
// may be released or be released yet. It costs one round trip.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	if err := l.check(); err != nil {
		return false, wrap("force unlock", l.Name(), err)
	}
	forced, err := l.write.Force(ctx, func() *script.Call { return force(l.write.Key()) })
	return forced, wrap("force unlock", l.Name(), err)
}

// free is the time left of a lock that nobody holds.
const free = time.Duration(-2)

func (l *Lock) inspect(ctx context.Context, field string) (left time.Duration, levels int, err error) {
	if err := l.check(); err != nil {
		return free, 0, err
	}
	c, err := l.core.Read(ctx, func() *script.Call { return inspect(l.write.Key(), field) })
	if err != nil {
		return free, 0, err
	}
	return inspected(c)
}

// check returns what is wrong with the name or the options.
func (l *Lock) check() error {
	if l.err != nil {
		return l.err
	}
	return l.write.Check()
}

func (l *Lock) acquire(ctx context.Context, verb string, single bool, opts []rlock.Option) (*rlock.Hold, error) {
	return l.collect(verb, opts, func(o *lease.Options) (*lease.Hold, error) {
		return l.write.AcquireAlone(ctx, o, single)
	})
}

func (l *Lock) acquireShare(ctx context.Context, verb string, single bool, opts []rlock.Option) (*rlock.Hold, error) {
	return l.collect(verb, opts, func(o *lease.Options) (*lease.Hold, error) {
		return l.read.AcquireShare(ctx, o, single, &l.beside)
	})
}

func (l *Lock) collect(verb string, opts []rlock.Option, acquire func(*lease.Options) (*lease.Hold, error)) (*rlock.Hold, error) {
	o, err := lease.Collect(opts)
	if err == nil {
		err = l.err
	}
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	hold, err := acquire(o)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	return rlock.NewHold("rrwlock", hold), nil
}

func (l *Lock) do(
	ctx context.Context, verb string, fn func(context.Context) error, opts []rlock.Option,
	acquire func(context.Context, string, bool, []rlock.Option) (*rlock.Hold, error),
) error {
	if fn == nil {
		return wrap(verb, l.Name(), fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	hold, err := acquire(ctx, verb, false, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, hold, fn, "rrwlock", l.Name(), l.core.Logger)
}

func wrap(verb, name string, err error) error { return errs.Wrap("rrwlock", verb, name, err) }
