package rmultilock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/rlock"
)

// title is the name of the package, for messages.
const title = "rmultilock"

// Lock is several locks that are taken as one: all of them, or a majority. It holds no state: any number of goroutines may
// share one, and two that were made of the same locks are the same; of a RedLock, and where locks have one name, in the same
// order. It is safe for concurrent use.
type Lock struct {
	members []member // a multi-lock's in the order of their names
	need    int      // so many of them make a hold
	red     bool
	name    string
	err     error          // bad input, reported by the methods
	logger  *slog.Logger   // of the client that it was got from
	lease   time.Duration  // of a RedLock's sub-holds, unless an option says otherwise
	workers *timer.Workers // for renewals that block: those of locks that are not this module's
}

var _ rlock.Locker = (*Lock)(nil)

// New returns the lock that holds all of the given ones. It is for the client: users call GetMultiLock there.
func New(e *core.Core, lockers ...rlock.Locker) *Lock {
	return newLock(e, lockers, func(l *Lock) {
		slices.SortStableFunc(l.members, func(a, b member) int { return strings.Compare(a.locker.Name(), b.locker.Name()) })
		l.need = len(l.members)
	})
}

// NewRed returns the lock that holds a majority of the given ones. It is for the client: users call GetRedLock there.
func NewRed(e *core.Core, lockers ...rlock.Locker) *Lock {
	return newLock(e, lockers, func(l *Lock) { l.red, l.need = true, len(l.members)/2+1 })
}

func newLock(e *core.Core, lockers []rlock.Locker, arrange func(*Lock)) *Lock {
	l := &Lock{logger: e.Logger, lease: e.Lease, workers: timer.NewWorkers(renewers)}
	l.err = guard(func() (err error) {
		if l.members, err = membersOf(lockers); err != nil {
			return err
		}
		arrange(l)
		l.name = l.joined()
		return nil
	})
	return l
}

// joined returns the names of the locks, each once, in their order.
func (l *Lock) joined() string {
	var names []string
	for _, m := range l.members {
		if name := m.locker.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Name returns the names of the locks, joined by commas: in their order, and each once.
func (l *Lock) Name() string { return l.name }

// Lock acquires all locks, or a majority of them for a RedLock. Where ctx descends from a live hold of one of the locks, that
// one nests as it does by itself, so that under a hold of this very lock the whole nests.
//
// It blocks until the lock is acquired, ctx is done, the wait of [rlock.WithWait] is over ([rlock.ErrNotAcquired]), a client that is needed
// closes (redlatch.ErrClosed), or an error that cannot pass. A RedLock that reaches no majority waits for masters to come back, for one lease
// of nothing else; then it returns [rlock.ErrNotAcquired], with the error of one of them. After an error nothing is held: what had been
// acquired is released on every server, also where the answer is unknown. Bad input, such as no locks, a nil one or the same one twice, is
// redlatch.ErrInvalid before any I/O: the same lock is that of one client and name.
//
// [rlock.WithLease], [rlock.WithMaxHold] and [rlock.WithoutReentry] apply to each of the locks; [rlock.WithTakeOver] is
// redlatch.ErrInvalid. Without a lease of its
// own each lock of a multi-lock is renewed as its client does. Those of a RedLock have one lease, that of the client it was got from, and are renewed
// together every third of it; masters that did not take part at first, or restarted, are taken in then.
//
// A deadline of ctx ends the hold's context too: to bound only the wait use [rlock.WithWait].
func (l *Lock) Lock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "lock", false, opts)
}

// TryLock tries once to acquire the lock, or for as long as [rlock.WithWait] says, and returns [rlock.ErrNotAcquired] when too many locks are
// taken, or too few masters can be reached for a RedLock. It nests, fails and holds as Lock does.
func (l *Lock) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	return l.acquire(ctx, "try lock", true, opts)
}

// Do acquires the lock as Lock does, or not at all with WithWait(0), runs fn under the hold's context and releases the lock, also when fn
// panics. It returns fn's error, joined with [rlock.ErrLost] if the lock was lost meanwhile, or with what Unlock returned.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error, opts ...rlock.Option) error {
	if fn == nil {
		return wrap("do", l.name, fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	h, err := l.acquire(ctx, "do", false, opts)
	if err != nil {
		return err
	}
	return lease.During(ctx, h, fn, title, l.name, l.logger)
}

func (l *Lock) acquire(ctx context.Context, verb string, single bool, opts []rlock.Option) (*rlock.Hold, error) {
	h, err := l.take(ctx, single, opts)
	if err != nil {
		return nil, wrap(verb, l.name, err)
	}
	return rlock.NewHold(title, h), nil
}

func (l *Lock) take(ctx context.Context, single bool, opts []rlock.Option) (*hold, error) {
	o, err := lease.Collect(opts)
	if err == nil {
		err = l.check(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	outer := l.holdOf(ctx)
	if outer != nil && o.NoNest {
		return nil, errs.ErrHeld
	}
	c := &call{lock: l, ctx: ctx, outer: outer, options: *o, single: single, start: time.Now()}
	if o.Wait != nil {
		c.single = *o.Wait == 0
		c.limit = c.start.Add(*o.Wait)
	}
	c.options.Wait = nil
	if l.red {
		return c.majority()
	}
	return c.all()
}

// check judges a call before any I/O. A done ctx wins over everything but bad arguments.
func (l *Lock) check(ctx context.Context, o *lease.Options) error {
	if err := l.bad(); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if o.TakeOver != nil {
		return errNoTakeOver
	}
	return ctx.Err()
}

// errNoTakeOver is the error of a call with rlock.WithTakeOver: a lock made of others has no owner id of its own.
var errNoTakeOver = fmt.Errorf("%w: a lock made of others is not taken over", errs.ErrInvalid)

// bad returns what is wrong with the lock itself.
func (l *Lock) bad() error { return l.err }

// holdOf returns the live hold of this very lock that ctx descends from; nil if there is none.
func (l *Lock) holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(lease.Lineage{Of: l}).(*hold)
	return h
}

// same reports whether the two were made of the same locks.
func (l *Lock) same(other *Lock) bool {
	return l == other || l.red == other.red && slices.EqualFunc(l.members, other.members, member.same)
}

func wrap(verb, name string, err error) error { return errs.Wrap(title, verb, name, err) }
