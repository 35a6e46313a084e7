package rsemaphore

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

// PermitSemaphore is a number of leased permits that processes share. A permit is renewed until it is released, and
// returns by itself when its holder dies. All times are those of Redis's clock. Java clients compare their own clocks,
// so they need NTP on the same semaphore.
//
// A PermitSemaphore has no state: any number of goroutines may use one, and two of the same name from one client are
// the same semaphore. It must not have the name of a [Semaphore]. It is safe for concurrent use.
type PermitSemaphore struct {
	name    locker.Name
	manager *permitManager
	max     *int  // nil for none
	err     error // of the options
}

// permitManager is a client's state for its leased permits.
type permitManager struct {
	core    *core.Core
	permits *locker.Manager
	sizes   *counter.Manager // changes of the number of permits
}

func newPermitManager(e *core.Core) *permitManager {
	return &permitManager{core: e, permits: locker.NewManager(locker.NewNamespace(e), permitKind{}.locker()), sizes: counter.New(e, resizeKind())}
}

// NewPermits returns the semaphore with this name whose permits are leased, as client.GetPermitSemaphore does. client
// is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of every method.
func NewPermits(client core.Client, name string, opts ...Option) *PermitSemaphore {
	c := core.Of(client)
	m := core.Manager(c, newPermitManager)
	o, err := collect(opts, Option.set)
	return &PermitSemaphore{name: m.permits.Name(name), manager: m, max: o.max, err: err}
}

// Name returns the semaphore's name as it was given to the client.
func (s *PermitSemaphore) Name() string { return s.name.User() }

// TrySetPermits gives the semaphore n permits if it has never been given any, and reports whether it did. From 1 to
// 2³¹-1.
//
// It waits for Redis until ctx is done, the client closes, or, if ctx has no deadline, the call timeout is over (see
// redlatch.WithCallTimeout), and for about one lease of the client at most. A call whose reply is lost is repeated
// until then, and takes effect once. After redlatch.ErrUnknown it may have taken effect, or may still; after any other
// error it took no effect. It costs one round trip.
func (s *PermitSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	done, err := s.resize(ctx, createPermits, n)
	return done, s.wrap("try set permits", err)
}

// SetPermits sets the total number of permits to n, held ones included, and creates the semaphore if it does not exist.
// From 1 to 2³¹-1. It takes no permit away from its holder: while more than n are held, [PermitSemaphore.Available] is
// negative and nobody can acquire one. It blocks, fails and costs as TrySetPermits does.
func (s *PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.resize(ctx, setPermits, n)
	return s.wrap("set permits", err)
}

// AddPermits adds delta permits, or removes permits if delta is negative, and creates the semaphore if it does not
// exist. From -2³¹+1 to 2³¹-1, but not 0. It takes no permit away from its holder. It blocks, fails and costs as
// TrySetPermits does. A repeated call adds delta once more.
func (s *PermitSemaphore) AddPermits(ctx context.Context, delta int) error {
	_, err := s.resize(ctx, addPermits, delta)
	return s.wrap("add permits", err)
}

// Available returns how many permits can be acquired now: 0 if the semaphore was never given any, and a negative number
// while more are held than it has. Permits whose lease has ended count as available.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. It costs one round trip.
func (s *PermitSemaphore) Available(ctx context.Context) (int, error) {
	if err := s.check(); err != nil {
		return 0, s.wrap("available", err)
	}
	c, err := s.manager.core.Read(ctx, func() *script.Call { return permitKind{}.available(s.name.Key()) })
	if err != nil {
		return 0, s.wrap("available", err)
	}
	n, err := c.Int()
	return int(n), s.wrap("available", err)
}

// Acquire acquires a permit. It never nests: each call acquires another permit, also under the context of one.
//
// It blocks until a permit is acquired, ctx is done, the time of [WithWait] is over ([ErrNotAcquired]), the client
// closes (redlatch.ErrClosed), or an error occurs that will not pass, such as a missing permission; on the first
// attempt also a refused connection. It retries other connection errors, and what Redis cannot do at the moment (it is
// loading or failing over), for one lease in a row. If a semaphore was never given permits, Acquire waits until it is.
// Waiters of one client are served first come, first served. If another kind of object uses the name, it returns
// redlatch.ErrWrongType. After an error no permit is held; what an attempt may have been granted is released in the
// background.
//
// The lease is the client's, 30 s by default, and is renewed until Release; see [WithFixedLease]. It costs one round trip if
// a permit is available. The waiters of a client together cost one more whenever permits may have come back, and about
// one a second.
func (s *PermitSemaphore) Acquire(ctx context.Context, opts ...PermitOption) (*Permit, error) {
	permits, err := s.acquire(ctx, locker.Forever, 1, opts)
	return first(permits), s.wrap("acquire", err)
}

// TryAcquire tries once to acquire a permit, or for as long as [WithWait] says, and returns [ErrNotAcquired] if none is
// available or others of this client wait for one. If the outcome of the attempt is unknown, it returns
// redlatch.ErrUnknown, and the attempt is taken back in the background. Otherwise it is like Acquire.
//
// Without a wait it costs one round trip, or none. It ends with ctx, or after the call timeout if ctx has no deadline
// (see redlatch.WithCallTimeout).
func (s *PermitSemaphore) TryAcquire(ctx context.Context, opts ...PermitOption) (*Permit, error) {
	permits, err := s.acquire(ctx, locker.Once, 1, opts)
	return first(permits), s.wrap("try acquire", err)
}

// AcquireN acquires n permits in one step, all or none. It blocks, fails and costs as Acquire does; WithWait(0) tries
// once. Each permit has an id and a context of its own, and is released by itself. While the call waits, later calls of
// the same client wait behind it. From 1 to 10,000. More than [WithMax] allows is redlatch.ErrInvalid; for more than
// the semaphore has, it waits until there are enough.
func (s *PermitSemaphore) AcquireN(ctx context.Context, n int, opts ...PermitOption) ([]*Permit, error) {
	permits, err := s.acquire(ctx, locker.Forever, n, opts)
	return permits, s.wrap("acquire n", err)
}

// Do acquires a permit as Acquire does, runs fn under the permit's context, and releases the permit, also if fn panics.
// With WithWait(0) it runs fn now or not at all. It returns what fn returned, joined with [ErrLost] if the permit was
// lost meanwhile. A release that was not answered is logged and is no error of Do. A nil fn is redlatch.ErrInvalid.
func (s *PermitSemaphore) Do(ctx context.Context, fn func(context.Context) error, opts ...PermitOption) error {
	if fn == nil {
		return s.wrap("do", errNilFunc)
	}
	permits, err := s.acquire(ctx, locker.Forever, 1, opts)
	if err != nil {
		return s.wrap("do", err)
	}
	return lease.During(ctx, unlocker{permits[0]}, fn, kinds.Permits, s.Name(), s.manager.core.Logger)
}

// errNilFunc is the error of a Do without a function.
var errNilFunc = fmt.Errorf("%w: fn is nil", errs.ErrInvalid)

// unlocker is a permit as [lease.During] takes it.
type unlocker struct{ permit *Permit }

func (u unlocker) Context() context.Context         { return u.permit.Context() }
func (u unlocker) Owner() string                    { return u.permit.ID() }
func (u unlocker) Unlock(ctx context.Context) error { return u.permit.Release(ctx) }
func (u unlocker) Noun() string                     { return "permit" }

// mostTogether is how many permits one call may acquire.
const mostTogether = 10_000

func (s *PermitSemaphore) acquire(ctx context.Context, p locker.Patience, n int, opts []PermitOption) ([]*Permit, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	set, err := collect(opts, PermitOption.setPermit)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > mostTogether {
		return nil, fmt.Errorf("%w: n %d is not between 1 and %d", errs.ErrInvalid, n, mostTogether)
	}
	if err := s.within("n", n); err != nil {
		return nil, err
	}
	o := &locker.Options{Wait: set.wait, Term: lease.Term{Lease: set.lease}}
	if n > 1 {
		o.Several = &locker.Several{Count: n}
	}
	hold, err := s.name.Acquire(ctx, o, p)
	if err != nil {
		return nil, err
	}
	permits := make([]*Permit, 1, n)
	permits[0] = &Permit{hold: hold}
	if o.Several != nil {
		for _, other := range o.Several.Rest {
			permits = append(permits, &Permit{hold: other})
		}
	}
	return permits, nil
}

// check returns the error of the name or the options.
func (s *PermitSemaphore) check() error {
	if err := s.name.Check(); err != nil {
		return err
	}
	return s.err
}

// within checks a number against [WithMax].
func (s *PermitSemaphore) within(what string, n int) error {
	if s.max != nil && n > *s.max {
		return fmt.Errorf("%w: %s %d is above the maximum of %d", errs.ErrInvalid, what, n, *s.max)
	}
	return nil
}

func (s *PermitSemaphore) wrap(verb string, err error) error { return wrapPermit(verb, s.Name(), err) }

func wrapPermit(verb, name string, err error) error {
	return errs.Wrap("rsemaphore", verb, name, errs.Of("permit", err))
}

func first(permits []*Permit) *Permit {
	if len(permits) == 0 {
		return nil
	}
	return permits[0]
}
