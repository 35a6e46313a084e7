package rsemaphore

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// PermitSemaphore leases permits, at most as many at a time as it has. A permit is renewed until it is released, and
// returns by itself when its holder dies. All times are those of Redis's clock. Java clients compare their own clocks,
// so they need NTP on the same semaphore.
//
// It holds no state: any number of goroutines may share one, and two of the same name from one client are the same semaphore. It must
// not have the name of a [Semaphore]. It is safe for concurrent use.
type PermitSemaphore struct {
	name  lease.Name
	space *permitManager
	set   options // what was set for the semaphore
	err   error   // of those
}

// permitManager is what a client knows of its leased permits.
type permitManager struct {
	core    *core.Core
	permits *lease.Space
	sizes   *counter.Manager // changes of the number of permits
}

func newPermitManager(e *core.Core) *permitManager {
	return &permitManager{core: e, permits: lease.NewSpace(lease.NewRegistry(e), permitKind{}), sizes: counter.New(e, resizeKind())}
}

// NewPermitSemaphore returns the named semaphore of a client. It is for the client: users call GetPermitSemaphore there.
func NewPermitSemaphore(c *core.Core, name string, opts ...Option) *PermitSemaphore {
	s := core.Manager(c, newPermitManager)
	set, err := collect(opts, usesLease|usesMax)
	return &PermitSemaphore{name: s.permits.Name(name), space: s, set: set, err: err}
}

// Name returns the semaphore's name as it was given to the client.
func (s *PermitSemaphore) Name() string { return s.name.User() }

// TrySetPermits gives the semaphore n permits if it has never been given any, and reports whether it did. From 1 to 2³¹-1.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout).
// A call whose reply was lost is repeated until then, and takes effect once. After redlatch.ErrUnknown it may have
// taken effect, or may still. It costs one round trip.
func (s *PermitSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	done, err := s.resize(ctx, createPermits, n)
	return done, s.wrap("try set permits", err)
}

// SetPermits has the semaphore have n permits in all, those that are out included, and creates it if need be. From 1 to 2³¹-1. It
// takes no permit away from its holder: while more than n are out, [PermitSemaphore.Available] is negative and nobody acquires any.
// It waits, fails and costs as TrySetPermits does.
func (s *PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.resize(ctx, setPermits, n)
	return s.wrap("set permits", err)
}

// AddPermits gives the semaphore delta permits more, or less if delta is negative, and creates it if need be. Any number from -2³¹+1 to
// 2³¹-1 but 0. It takes no permit away from its holder. It waits, fails and costs as TrySetPermits does, and adds once.
func (s *PermitSemaphore) AddPermits(ctx context.Context, delta int) error {
	_, err := s.resize(ctx, addPermits, delta)
	return s.wrap("add permits", err)
}

// Available returns how many permits may be acquired now: 0 if the semaphore was never given any, and a negative number while more are
// out than it has. Those whose lease has ended count as available.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. It costs one round trip.
func (s *PermitSemaphore) Available(ctx context.Context) (int, error) {
	if err := s.check(); err != nil {
		return 0, s.wrap("available", err)
	}
	c, err := s.space.core.Read(ctx, func() *script.Call { return permitKind{}.available(s.name.Key()) })
	if err != nil {
		return 0, s.wrap("available", err)
	}
	n, err := c.Int()
	return int(n), s.wrap("available", err)
}

// Acquire acquires a permit. Each call acquires one of its own, also under the context of another permit.
//
// It blocks until a permit is acquired, ctx is done, the wait of [WithWait] is over ([ErrNotAcquired]), the client closes
// (redlatch.ErrClosed), or an error that cannot pass, such as a missing permission; on the first try a refused connection too. What Redis
// cannot do just now (it loads, or fails over) and transport errors are retried for one lease. A semaphore that was never given permits has
// none: Acquire waits until it is. The waiters of one client stand in one line. After an error no permit is held: what was left unknown is
// given back in the background. A name that another kind of object uses is redlatch.ErrWrongType.
//
// The lease is the client's, 30 s by default, and is renewed until the permit is released; see [WithLease]. It costs one round trip
// if a permit is available. A line that waits costs one more each time that permits may have come back, and one about every second.
func (s *PermitSemaphore) Acquire(ctx context.Context, opts ...Option) (*Permit, error) {
	permits, err := s.acquire(ctx, false, 1, opts)
	return first(permits), s.wrap("acquire", err)
}

// TryAcquire tries once to acquire a permit, or for as long as [WithWait] says, and returns [ErrNotAcquired] when there is none, or when
// others of this client wait for one. A try whose outcome is not known returns redlatch.ErrUnknown. Otherwise it is like Acquire.
func (s *PermitSemaphore) TryAcquire(ctx context.Context, opts ...Option) (*Permit, error) {
	permits, err := s.acquire(ctx, true, 1, opts)
	return first(permits), s.wrap("try acquire", err)
}

// AcquireN acquires n permits in one step, all or none, and waits, fails and costs as Acquire does; WithWait(0) tries once. Each is a
// permit of its own, with its own id and context, and is released by itself. While the call waits, smaller ones of the same client that
// come later wait behind it. From 1 to 10,000; more than [WithMax] said is redlatch.ErrInvalid, more than there are waits until there are.
func (s *PermitSemaphore) AcquireN(ctx context.Context, n int, opts ...Option) ([]*Permit, error) {
	permits, err := s.acquire(ctx, false, n, opts)
	return permits, s.wrap("acquire n", err)
}

// mostTogether is how many permits one call may acquire.
const mostTogether = 10_000

func (s *PermitSemaphore) acquire(ctx context.Context, single bool, n int, opts []Option) ([]*Permit, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	set, err := collect(opts, usesWait|usesLease)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > mostTogether {
		return nil, fmt.Errorf("%w: n %d is not between 1 and %d", errs.ErrInvalid, n, mostTogether)
	}
	if err := s.within("n", n); err != nil {
		return nil, err
	}
	if set.lease == nil {
		set.lease = s.set.lease
	}
	o := &lease.Options{Wait: set.wait, Lease: set.lease}
	if n > 1 {
		o.Several = &lease.Several{Count: n}
	}
	hold, err := s.name.Acquire(ctx, o, single)
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

// check returns what is wrong with the name and the options of the semaphore.
func (s *PermitSemaphore) check() error {
	if err := s.name.Check(); err != nil {
		return err
	}
	return s.err
}

// within judges a number against the most permits that the semaphore may have.
func (s *PermitSemaphore) within(what string, n int) error {
	if s.set.max != nil && n > *s.set.max {
		return fmt.Errorf("%w: %s %d is above the semaphore's limit of %d", errs.ErrInvalid, what, n, *s.set.max)
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
