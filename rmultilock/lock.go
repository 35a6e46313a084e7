package rmultilock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	inner "github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/rlock"
)

// title is the name of the package, for messages.
const title = "rmultilock"

type sealed = locker.Sealed // embedded: makes a multi-lock a rlock.Locker

// Lock acquires several locks as one: all of them, or a majority. A Lock has no state: any number of goroutines may use
// one. Two that consist of the same locks are the same lock; the order of the locks matters for a RedLock, and for
// locks of equal names. It is safe for concurrent use.
type Lock struct {
	sealed
	kind    kind
	members []member // of a multi-lock: sorted by name
	quorum  int      // how many of them make a hold
	name    string
	err     error      // of bad input; the methods return it
	core    *core.Core // of the client that returned the lock
	manager *manager   // of that client
}

// kind says how many members a lock needs.
type kind uint8

const (
	multi kind = iota // all of them
	red               // a majority
)

var _ rlock.Locker = (*Lock)(nil)

// New returns the lock that consists of all the given ones, as client.GetMultiLock does. client is a *redlatch.Client.
// It does no I/O and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, lockers ...rlock.Locker) *Lock {
	e := core.Of(client)
	l := newLock(e, multi, lockers)
	slices.SortStableFunc(l.members, func(a, b member) int { return strings.Compare(a.locker.Name(), b.locker.Name()) })
	l.name = strings.Join(slices.Sorted(slices.Values(namesOf(lockers))), ",")
	l.quorum = len(l.members)
	return l
}

// NewRed returns the lock that consists of a majority of the given ones, as client.GetRedLock does. client is a
// *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of every method.
func NewRed(client core.Client, lockers ...rlock.Locker) *Lock {
	e := core.Of(client)
	l := newLock(e, red, lockers)
	l.name = strings.Join(namesOf(lockers), ",")
	l.quorum = len(l.members)/2 + 1
	return l
}

func newLock(e *core.Core, k kind, lockers []rlock.Locker) *Lock {
	l := &Lock{sealed: sealed{}, kind: k, core: e, manager: core.Manager(e, newManager)}
	l.members, l.err = membersOf(lockers)
	return l
}

// namesOf returns the names of locks, good or bad, in their order, each once.
func namesOf(lockers []rlock.Locker) (names []string) {
	for _, one := range lockers {
		if _, made := one.(*Lock); one == nil || !made && locker.NameOf(one) == nil {
			continue // it has none
		}
		if name := one.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Name returns the names of the locks in their order, each once, joined by commas.
func (l *Lock) Name() string { return l.name }

// Lock acquires all locks, or a majority of them for a RedLock. If ctx descends from a live hold of one of the locks,
// the call nests in that hold; under a hold of this multi-lock or RedLock, all its locks nest.
//
// It blocks until the lock is acquired, ctx is done, the time of [rlock.WithWait] is over ([rlock.ErrNotAcquired]), one
// of the clients closes (redlatch.ErrClosed), or an error occurs that will not pass. While servers do not answer it
// keeps trying, for one lease in a row; then it returns redlatch.ErrUnavailable. Answers that come after a lease has
// ended count as none. For a RedLock, and after such answers, [rlock.ErrNotAcquired] is joined. A wait that ends for another
// reason while servers do not answer joins its error with redlatch.ErrUnavailable; attempts that are still
// open then do not count as answered. After an error nothing is held: what was acquired, or may have been, is released on every
// server. Bad input is redlatch.ErrInvalid before any I/O: no locks, a nil lock, or the same lock twice. One name of one
// client, or of two clients of one go-redis client, is one lock, whatever its kind, be it given or part of a given
// multi-lock or RedLock: a plain and a fair lock, or the two views of a read-write lock. Names of two go-redis clients
// are taken for those of two servers.
//
// [rlock.WithFixedLease], [rlock.WithRenewedLease], [rlock.WithMaxHold] and [rlock.WithoutReentry] apply to each of the locks; [rlock.WithTakeOver] is
// redlatch.ErrInvalid. Without WithFixedLease each lock has the lease of its client, which renews it. Masters that did not
// grant a RedLock at first, or restarted, are attempted again while it is held.
//
// A deadline of ctx ends the hold's context too: use [rlock.WithWait] to limit only the wait.
func (l *Lock) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "lock", blocks, opts)
}

// TryLock tries once to acquire the lock, or for as long as [rlock.WithWait] says, and returns [rlock.ErrNotAcquired]
// if too many locks are busy. The error is joined with redlatch.ErrUnavailable if too few masters of a RedLock
// answered. It nests and fails as Lock does.
//
// Without a wait, and without a deadline of ctx, a RedLock returns within a tenth of the lease (20 to 500 ms), and a
// multi-lock within 3.5 s, or the call timeout if that is less (see redlatch.WithCallTimeout). A failed attempt takes up
// to 0.1 s more for its releases, though not beyond the call timeout.
func (l *Lock) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "try lock", tries, opts)
}

// Do acquires the lock as Lock does, runs fn under the hold's context, and releases the lock, also if fn panics. With
// [rlock.WithWait](0) it runs fn now or not at all. It returns what fn returned, joined with [rlock.ErrLost] if the
// lock was lost meanwhile. A release that was not answered is logged and is no error of Do.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	if fn == nil {
		return wrap("do", l.name, fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	h, err := l.acquire(ctx, "do", blocks, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, h, fn, kinds.MultiLock, l.name, l.core.Logger)
}

// holder returns who holds the first of the locks that is held, and only if none is the error of one that could not be asked.
// It asks all at the same time. It waits for Redis until ctx is done, or for
// the call timeout of the client that returned the lock if ctx has no deadline, and once one of the locks is known to be
// held, for the others no longer than half a second.
func (l *Lock) holder(ctx context.Context) (locker.Info, error) {
	looks := l.look(ctx)
	slices.SortFunc(looks, func(a, b look) int { return cmp.Compare(a.member, b.member) })
	var unknown error // of the first one that could not be asked
	for _, one := range looks {
		if one.err == nil && one.info.Locked {
			return one.info, nil
		}
		unknown = cmp.Or(unknown, one.err)
	}
	return locker.Info{Name: l.name}, unknown
}

// look is who holds a member.
type look struct {
	member int
	info   locker.Info
	err    error
}

// look asks all members who holds them. Once one is known to be held it leaves out those that take long.
func (l *Lock) look(ctx context.Context) (looks []look) {
	ctx, end := l.core.Bound(ctx)
	defer end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answered := make(chan look, len(l.members)) // room for those that are left out
	for i, m := range l.members {
		go func() { // ends with ctx
			info, err := m.holder(ctx)
			answered <- look{i, info, err}
		}()
	}
	var enough <-chan time.Time
	for len(looks) < len(l.members) {
		select {
		case one := <-answered:
			looks = append(looks, one)
			if one.err == nil && one.info.Locked && enough == nil {
				enough = time.After(masterMost)
			}
		case <-enough:
			return looks
		}
	}
	return looks
}

func (l *Lock) acquire(ctx context.Context, verb string, m mode, opts []rlock.Option) (*rlock.Hold, error) {
	o, err := locker.Collect(opts)
	if err == nil {
		err = l.check(ctx, o)
	}
	if err != nil {
		return nil, wrap(verb, l.name, err)
	}
	outer := l.holdOf(ctx)
	if outer != nil && o.NoNest {
		return nil, wrap(verb, l.name, errs.ErrHeld)
	}
	o = o.At(l.core)
	h, err := l.observed(ctx, m, o, outer)
	if err != nil {
		return nil, wrap(verb, l.name, o.Refused(ctx, err, l.holder))
	}
	return (*rlock.Hold)(inner.Acquired(ctx, l.core, o, title, h)), nil
}

// observed runs a call, and tells an observer of it unless it nests.
func (l *Lock) observed(ctx context.Context, m mode, o *locker.Options, outer *hold) (*hold, error) {
	if outer != nil || !l.core.Events.ObservesAcquire() {
		return newCall(ctx, l, m, o, outer).run()
	}
	observed := *o
	observed.Asked = new(atomic.Int32)
	ctx, call := l.core.Events.BeginAcquire(ctx, kinds.MultiLock, l.name)
	h, err := newCall(ctx, l, m, &observed, outer).run()
	owner := ""
	if err == nil {
		owner = h.Owner()
	}
	call.End(ctx, owner, int(observed.Asked.Load()), err)
	return h, err
}

// check validates a call before any I/O. A done ctx takes precedence over everything except bad arguments.
func (l *Lock) check(ctx context.Context, o *locker.Options) error {
	if l.err != nil {
		return l.err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if o.TakeOver != nil {
		return fmt.Errorf("%w: WithTakeOver does not apply to multi-locks and RedLocks", errs.ErrInvalid)
	}
	return ctx.Err()
}

// holdOf returns the live hold of this lock that ctx descends from; nil if there is none.
func (l *Lock) holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(lease.Lineage{Of: l}).(*hold)
	return h
}

// same reports whether the two consist of the same locks.
func (l *Lock) same(other *Lock) bool {
	return l == other || l.kind == other.kind && slices.EqualFunc(l.members, other.members, member.same)
}

func wrap(verb, name string, err error) error { return errs.Wrap(title, verb, name, err) }

// member is one of the locks.
type member struct {
	locker rlock.Locker
	name   *locker.Name // of a lock whose attempts share a pipeline; nil for one whose TryLock is called
}

// membersOf validates the locks and returns them as members.
func membersOf(lockers []rlock.Locker) ([]member, error) {
	if len(lockers) == 0 {
		return nil, fmt.Errorf("%w: no locks given", errs.ErrInvalid)
	}
	members := make([]member, 0, len(lockers))
	for i, one := range lockers {
		if one == nil {
			return nil, fmt.Errorf("%w: lock %d is nil", errs.ErrInvalid, i+1)
		}
		m := member{locker: one}
		if err := m.check(); err != nil {
			return nil, err
		}
		if plain, ok := one.(*rlock.Lock); ok {
			m.name = locker.NameOf(plain)
		}
		for _, before := range members {
			if twice := m.meets(before); twice != nil {
				return nil, fmt.Errorf("%w: the lock %q is given twice", errs.ErrInvalid, twice.User())
			}
		}
		members = append(members, m)
	}
	return members, nil
}

// holder returns who holds the member.
func (m member) holder(ctx context.Context) (locker.Info, error) {
	if l, ok := m.locker.(*Lock); ok {
		return l.holder(ctx)
	}
	return locker.NameOf(m.locker).Holder(ctx)
}

// check returns the error of a lock that can never be acquired.
func (m member) check() error {
	if l, ok := m.locker.(*Lock); ok {
		return l.err
	}
	if n := locker.NameOf(m.locker); n != nil {
		return n.Check()
	}
	return fmt.Errorf("%w: the lock was not made by a client", errs.ErrInvalid)
}

// meets returns the name of a lock that both are, or are made of; nil if there is none.
func (m member) meets(other member) *locker.Name {
	if l, ok := m.locker.(*Lock); ok {
		for _, part := range l.members {
			if n := part.meets(other); n != nil {
				return n
			}
		}
		return nil
	}
	if _, ok := other.locker.(*Lock); ok {
		return other.meets(m)
	}
	if n := locker.NameOf(m.locker); n.Meets(locker.NameOf(other.locker)) {
		return n
	}
	return nil
}

// same reports whether the two are one lock.
func (m member) same(other member) bool {
	if l, ok := m.locker.(*Lock); ok {
		o, ok := other.locker.(*Lock)
		return ok && l.same(o)
	}
	mine, theirs := locker.NameOf(m.locker), locker.NameOf(other.locker)
	return theirs != nil && mine.Same(theirs)
}

// sendable reports whether an attempt can be sent at once: a call that nests may wait for other operations of its hold.
func (m member) sendable(ctx context.Context) bool { return m.name != nil && m.name.HoldOf(ctx) == nil }
