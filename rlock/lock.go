package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Locker is what the kinds of lock have in common.
type Locker interface {
	// Name returns the lock's name.
	Name() string
	// Lock blocks until the lock is acquired or ctx is done.
	Lock(ctx context.Context, opts ...Option) (*Hold, error)
	// TryLock tries once, or for as long as WithWait says.
	TryLock(ctx context.Context, opts ...Option) (*Hold, error)
	// Do runs fn while holding the lock.
	Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error
}

// Lock is a reentrant lock. It holds no state: any number of goroutines may share one, and two of the same name from one
// client are the same lock. [Lock.Lock] waits, [Lock.TryLock] does not, [Lock.Do] releases by itself. It is safe for concurrent use.
type Lock struct {
	name lease.Name
	core *core.Core
}

var _ Locker = (*Lock)(nil)

// Spaces are where a client's reentrant and fenced locks live. Locks of one name exclude each other in both.
type Spaces struct{ Plain, Fenced *lease.Space }

// NewSpaces returns the spaces of a client, which shares the owner ids with its other locks. It is for the client.
func NewSpaces(e *core.Core, owned *lease.Owned) Spaces {
	r := lease.NewRegistry(e, owned)
	return Spaces{Plain: lease.NewSpace(r, plainKind{}), Fenced: lease.NewSpace(r, fencedKind{keep: e.TokenTTL})}
}

// New returns the named lock of a space. It is for the client: users call GetLock or GetFencedLock there.
func New(e *core.Core, s *lease.Space, name string) *Lock {
	return &Lock{name: s.Name(name), core: e}
}

// LeaseName returns the lock as package lease knows it. It is for this module's kinds of lock.
func (l *Lock) LeaseName() *lease.Name { return &l.name }

// Name returns the lock's name as it was given to the client.
func (l *Lock) Name() string { return l.name.User() }

// Lock acquires the lock. Reentrancy follows ctx: where ctx descends from the context of a live hold of this very lock, the call
// adds a level to that hold and does not wait; any other context is a stranger's. Goroutines that share a hold's context share
// the hold: among them this lock does not exclude. Give one that has to compete [Detach] of that context, or use [WithoutReentry].
//
// It blocks until the lock is acquired, ctx is done, the wait of [WithWait] is over ([ErrNotAcquired]), the client closes
// (redlatch.ErrClosed), or an error that cannot pass, such as a missing permission; on the first try a refused
// connection too. What Redis cannot do just now (it loads, or fails over) and transport errors are retried for one lease in a row, by
// the first in this client's line. A name that another kind of object uses is redlatch.ErrWrongType.
// After an error the lock is not held: what was left unknown is released in the background.
//
// The lease is the client's, 30 s by default, and is renewed until Unlock; see [WithLease]. A deadline of ctx ends the hold's
// context too: to bound only the wait use [WithWait].
//
// A free lock costs one round trip. A waiter costs one more each time that the lock was released, and one about every second.
func (l *Lock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "lock", false, opts)
}

// TryLock tries once to acquire the lock, or for as long as [WithWait] says, and returns [ErrNotAcquired] when it is taken. It
// nests, fails and holds as Lock does. A try whose outcome is not known returns redlatch.ErrUnknown, and is taken back in the background.
//
// Without a wait it costs one round trip, or none when this client itself holds the lock. It ends with ctx, and after about 3 s when
// Redis is silent (in a cluster when the client's own ReadTimeout says); what Redis says it cannot do just now, as during a failover, is
// tried for about a third of a second.
func (l *Lock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "try lock", true, opts)
}

// Do acquires the lock as Lock does, or not at all with WithWait(0), runs fn under the hold's context and releases the lock, also when fn panics. It returns fn's
// error, joined with [ErrLost] if the lock was lost meanwhile, or with what Unlock returned.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	if fn == nil {
		return wrap("do", l.Name(), fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	hold, err := l.acquire(ctx, "do", false, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, hold, fn, "rlock", l.Name())
}

// IsLocked reports whether anybody holds the lock.
//
// It waits for Redis until ctx is done, and for about a lease at most: then it returns redlatch.ErrUnknown, or redis.ErrPoolTimeout
// if there was no connection to ask on. A closed client is redlatch.ErrClosed, a name that another kind of object uses
// redlatch.ErrWrongType. It costs one round trip.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	s, err := Inspect(ctx, l.core, &l.name, "")
	return s.Locked, wrap("is locked", l.Name(), err)
}

// HoldCount returns how many levels Redis counts for the hold that ctx descends from; 0, without asking Redis, if it descends from none.
// Otherwise it waits and fails as IsLocked does, and costs one round trip.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	if ctx == nil {
		return 0, wrap("hold count", l.Name(), core.ErrNilContext)
	}
	hold := l.name.HoldOf(ctx)
	if hold == nil {
		return 0, wrap("hold count", l.Name(), l.name.Check())
	}
	s, err := Inspect(ctx, l.core, &l.name, hold.Owner())
	return s.Levels, wrap("hold count", l.Name(), err)
}

// TTL returns how much of the present lease is left in Redis: 0 when the lock is free, negative when the key has no end, which no
// lock of redlatch or Redisson leaves behind. It waits and fails as IsLocked does, and costs one round trip.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	s, err := Inspect(ctx, l.core, &l.name, "")
	return s.Left, wrap("ttl", l.Name(), err)
}

// ForceUnlock releases the lock whoever holds it, and reports whether anybody did. A holder in this client hears of it at once, another
// one, and one that is just being renewed, at its next renewal at the latest. It is for operators: exclusion is broken until then.
//
// It waits for Redis until ctx is done, and for about 3 s at most (in a cluster as long as the client's own ReadTimeout and its dials take).
// It is sent once, since a second one would free whoever came after the first: when ctx ended first, and after redlatch.ErrUnknown, the
// lock may be released or be released yet. A closed client is redlatch.ErrClosed, a name that another kind of object uses
// redlatch.ErrWrongType. It costs one round trip.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	forced, err := l.name.Force(ctx, func() *script.Call { return kind{}.force(l.name.Key()) })
	return forced, wrap("force unlock", l.Name(), err)
}

func (l *Lock) acquire(ctx context.Context, verb string, single bool, opts []Option) (*Hold, error) {
	o, err := lease.Collect(opts)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	hold, err := l.name.Acquire(ctx, o, single)
	if err != nil {
		return nil, wrap(verb, l.Name(), err)
	}
	return NewHold("rlock", hold), nil
}

func wrap(verb, name string, err error) error { return errs.Wrap("rlock", verb, name, err) }
