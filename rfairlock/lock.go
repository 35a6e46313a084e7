package rfairlock

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

// Lock is a reentrant lock that is granted first come, first served. It holds no state: any number of goroutines may share one, and two
// of the same name from one client are the same lock. [Lock.Lock] waits, [Lock.TryLock] does not, [Lock.Do] releases by itself. It is
// safe for concurrent use.
type Lock struct {
	sealed
	name lease.Name
	core *core.Core
	kind *kind
}

type sealed = lease.Member // embedded: what makes a lock a rlock.Locker

var _ rlock.Locker = (*Lock)(nil)

// manager is what a client knows of its fair locks.
type manager struct {
	kind  *kind
	space *lease.Space
}

func newManager(c *core.Core) *manager {
	k := newKind(c)
	return &manager{kind: k, space: lease.NewSpace(lease.NewRegistry(c), k)}
}

// New returns the named lock of a client. It is for the client: users call GetFairLock there.
func New(c *core.Core, name string) *Lock {
	m := core.Manager(c, newManager)
	l := &Lock{name: m.space.Name(name), core: c, kind: m.kind}
	l.sealed = lease.MemberOf(&l.name)
	return l
}

// Name returns the lock's name as it was given to the client.
func (l *Lock) Name() string { return l.name.User() }

// Lock acquires the lock when all who came before have had it or have given up. Reentrancy follows ctx: where ctx descends from the
// context of a live hold of this very lock, the call adds a level to that hold and does not wait; any other context is a stranger's, who
// queues. Goroutines that share a hold's context share the hold: among them this lock does not exclude. Give one that has to compete
// [rlock.Detach] of that context, or use [rlock.WithoutReentry].
//
// It blocks until the lock is acquired, ctx is done, the wait of [rlock.WithWait] is over (rlock.ErrNotAcquired), the client closes
// (redlatch.ErrClosed), or an error that cannot pass, such as a missing permission; on the first try a refused connection too. What Redis
// cannot do just now (it loads, or fails over) and transport errors are retried for one lease. A name that another kind of object uses is
// redlatch.ErrWrongType. After an error the lock is not held, and the place in the queue is given up: what was left unknown is released in
// the background.
//
// The lease is the client's, 30 s by default, and is renewed until Unlock; see [rlock.WithLease]. A deadline of ctx ends the hold's
// context too: to bound only the wait use [rlock.WithWait].
//
// A free lock costs one round trip. A waiter costs one more when it is its turn, and its share of the client's one call about every second.
func (l *Lock) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "lock", false, opts)
}

// TryLock tries once to acquire the lock, and returns rlock.ErrNotAcquired when it is taken or others are waiting for it. With
// [rlock.WithWait] it queues for so long. It nests, fails and holds as Lock does. A try whose outcome is not known returns redlatch.ErrUnknown.
//
// Without a wait it costs one round trip, or none when this client itself holds the lock.
func (l *Lock) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "try lock", true, opts)
}

// Do acquires the lock as Lock does, runs fn under the hold's context, and releases the lock, also if fn panics. With
// rlock.WithWait(0) it runs fn now or not at all. It returns what fn returned, joined with [rlock.ErrLost] if the lock
// was lost meanwhile.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	if fn == nil {
		return wrap("do", l.Name(), fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	hold, err := l.acquire(ctx, "do", false, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, hold, fn, title, l.Name(), l.core.Logger)
}

// IsLocked reports whether anybody holds the lock. It waits and fails as [rlock.Lock.IsLocked] does, and costs one round trip.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	s, err := rlock.Inspect(ctx, l.core, &l.name, "")
	return s.Locked, wrap("is locked", l.Name(), err)
}

// HoldCount returns how many levels Redis counts for the hold that ctx descends from; 0 if it descends from none. It waits
// and fails as IsLocked does, and costs one round trip, or none.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	if ctx == nil {
		return 0, wrap("hold count", l.Name(), core.ErrNilContext)
	}
	hold := l.name.HoldOf(ctx)
	if hold == nil {
		return 0, wrap("hold count", l.Name(), l.name.Check())
	}
	s, err := rlock.Inspect(ctx, l.core, &l.name, hold.Owner())
	return s.Levels, wrap("hold count", l.Name(), err)
}

// TTL returns how much of the present lease is left in Redis: 0 when the lock is free, negative when the key has no end, which no
// lock of redlatch or Redisson leaves behind. It waits and fails as IsLocked does, and costs one round trip.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	s, err := rlock.Inspect(ctx, l.core, &l.name, "")
	return s.Left, wrap("ttl", l.Name(), err)
}

// ForceUnlock releases the lock whoever holds it, wakes who is next, and reports whether anybody held it. A holder in this client hears
// of it at once, another one, and one that is just being renewed, at its next renewal at the latest. It is for operators: exclusion is
// broken until then.
//
// It waits for Redis until ctx is done, and for about 3 s at most (in a cluster as long as the client's own ReadTimeout and its dials take).
// It is sent once, since a second one would free whoever came after the first: when ctx ended first, and after redlatch.ErrUnknown, the lock
// may be released or be released yet. It costs one round trip.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	forced, err := l.name.Force(ctx, func() *script.Call { return l.kind.force(l.name.Key()) })
	return forced, wrap("force unlock", l.Name(), err)
}

func (l *Lock) acquire(ctx context.Context, verb string, single bool, opts []rlock.Option) (*rlock.Hold, error) {
	o, err := lease.Collect(opts)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	hold, err := l.name.Acquire(ctx, o, single)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	return rlock.NewHold(title, hold), nil
}

func wrap(verb, name string, err error) error { return errs.Wrap(title, verb, name, err) }
