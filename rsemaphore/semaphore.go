package rsemaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
)

// releaseLimit bounds a Release whose context was already done when it began.
const releaseLimit = 3 * time.Second

// Semaphore is a number of permits that processes share. Permits belong to nobody: any process may release what another
// one acquired, and the permits of a process that dies are missing until someone adds them. A [PermitSemaphore] gets
// them back by itself.
//
// A Semaphore has no state: any number of goroutines may use one, and two of the same name from one client are the same
// semaphore, except for [WithMax]. [Semaphore.Acquire] waits, [Semaphore.TryAcquire] does not. It is safe for
// concurrent use.
//
// Every operation takes effect at most once, and exactly once if it succeeds, also if its reply is lost and it is
// repeated. Acquire and TryAcquire document when they end. The other operations end with the reply, when ctx is done,
// when the client closes (redlatch.ErrClosed), after the call timeout if ctx has no deadline (10 s by default, see
// redlatch.WithCallTimeout), and at the latest when they have failed for one lease of the client (30 s by default). A
// refused connection ends them at once, except for Release. The error is redlatch.ErrUnknown if the operation may have
// taken effect, or may still, and redlatch.ErrUnavailable if it took no effect because Redis did not answer. If Redis
// refuses a repetition for good, for example without permission, it is redlatch.ErrUnknown as well, and the repetition
// goes on in the background.
//
// A name that another kind of object uses is redlatch.ErrWrongType. Counts are from 1 to 2³¹-1; others are
// redlatch.ErrInvalid.
type Semaphore struct {
	manager *manager
	key     string
	most    int // 0 for no limit
	err     error
}

// New returns the counting semaphore with this name, as client.GetSemaphore does. client is a *redlatch.Client. It
// does no I/O and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string, opts ...Option) *Semaphore {
	c := core.Of(client)
	m := core.Manager(c, newManager)
	s := &Semaphore{manager: m, key: m.core.Prefix + name}
	o, err := collect(opts, Option.set)
	if o.max != nil {
		s.most = *o.max
	}
	s.err = cmp.Or(core.CheckUserName(name, s.key), err)
	return s
}

// Name returns the semaphore's name as it was given to the client.
func (s *Semaphore) Name() string { return s.manager.core.UserName(s.key) }

// TrySetPermits makes n permits available if the semaphore does not exist, and reports whether it did. A semaphore
// exists once TrySetPermits, Release or AddPermits has created it, also while it has 0 permits. It blocks and fails as
// [Semaphore] describes, and costs one round trip.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	err := s.check(ctx, n)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return false, s.wrap("try set permits", err)
	}
	set, err := s.manager.change(ctx, s.key, setOf(n), int64(n), counter.Change)
	return set == 1, s.wrap("try set permits", err)
}

// Acquire acquires n permits, all at once.
//
// It blocks until n permits are available and all earlier waiters of this client have been served, ctx is done, the
// client closes (redlatch.ErrClosed), or an error occurs that will not pass, such as a missing permission; on the first
// attempt also a refused connection. The call timeout does not bound it. If Redis does not answer or cannot serve at
// the moment, Acquire keeps trying for about one lease of the client, 30 s by default, or two if it has already been
// refused permits; it then returns redlatch.ErrUnavailable. It also waits for the permits of a semaphore that does not
// exist. More permits than [WithMax] allows are redlatch.ErrInvalid.
//
// After an error the call holds no permits: what a late reply grants is released in the background. If Redis did not
// answer when ctx ended, the error of ctx is joined with redlatch.ErrUnavailable.
//
// It costs one round trip if the permits are available. The waiters of a client together cost one more whenever there
// may be enough permits for the first of them, and about one a second.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	err := s.checkAcquire(ctx, n)
	if err == nil {
		_, err = s.manager.acquire(ctx, s.key, n, nil)
	}
	return s.wrap("acquire", err)
}

// TryAcquire acquires n permits if they are available now, or become available within the time of [WithWait], and
// reports whether it did. Without a wait it does not queue: it returns false at once if others of this client wait, and
// otherwise asks Redis once.
//
// It ends with ctx and when the client closes. With a wait it ends when that is over, otherwise after the call timeout
// if ctx has no deadline (see redlatch.WithCallTimeout). If Redis has not answered by then, it returns
// redlatch.ErrUnavailable; after a wait of less than 50 ms it may report false instead. It fails otherwise as Acquire
// does.
//
// Without a wait it costs one round trip, or none.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...AcquireOption) (bool, error) {
	o, err := collect(opts, AcquireOption.setAcquire)
	if checked := s.checkAcquire(ctx, n); checked != nil && (err == nil || s.bad() != nil) {
		err = checked
	}
	if err != nil {
		return false, s.wrap("try acquire", err)
	}
	var wait time.Duration
	if o.wait != nil {
		wait = *o.wait
	}
	acquired, err := s.manager.acquire(ctx, s.key, n, &wait)
	return acquired, s.wrap("try acquire", err)
}

// Do acquires n permits as Acquire does, runs fn with ctx, and releases the permits as Release does, also if fn panics.
// It returns what fn returned, joined with the error of the release. A release whose outcome is unknown goes on in the
// background; it is logged and is no error of Do. If the process dies, the permits are missing until someone adds them.
// A nil fn is redlatch.ErrInvalid.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(context.Context) error) (err error) {
	err = s.checkAcquire(ctx, n)
	if err == nil && fn == nil {
		err = errNilFunc
	}
	if err == nil {
		_, err = s.manager.acquire(ctx, s.key, n, nil)
	}
	if err != nil {
		return s.wrap("do", err)
	}
	defer func() {
		released := s.release(ctx, n)
		if errors.Is(released, errs.ErrUnknown) {
			s.manager.core.Logger.Warn("redlatch: a release of permits was not answered", "kind", kinds.Semaphore, "name", s.Name(), "permits", n, "cause", released)
			released = nil
		}
		if released != nil {
			err = errors.Join(err, s.wrap("do", released))
		}
	}()
	return fn(ctx)
}

// Release makes n permits available and wakes waiters. It does not check that they were acquired. With [WithMax], a
// Release that would exceed the maximum changes nothing and returns [ErrOverRelease]. It creates a semaphore that does
// not exist. A repeated call releases n more.
//
// It works although ctx is done, and then waits for 3 s at most. If ctx ends during the call, the call timeout is over,
// the client closes, or Redis refuses a repetition, it returns redlatch.ErrUnknown with the cause, and the release goes
// on in the background. After any other error nothing was released.
//
// It costs one round trip.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	return s.wrap("release", s.release(ctx, n))
}

func (s *Semaphore) release(ctx context.Context, n int) error {
	if err := s.check(ctx, n); err != nil {
		return err
	}
	if ctx.Err() != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		ctx = limited
	}
	code := releaseOf(n)
	if s.most > 0 {
		code = releaseUpTo(n, s.most)
	}
	done, err := s.manager.change(ctx, s.key, code, int64(n), counter.Insist)
	if err == nil && done == 0 {
		err = errs.ErrOverRelease
	}
	return err
}

// Available returns how many permits can be acquired now: 0 if the semaphore does not exist, and a negative number if
// AddPermits removed more than were available.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. It costs one round trip.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	n, err := s.available(ctx)
	return n, s.wrap("available", err)
}

func (s *Semaphore) available(ctx context.Context) (int, error) {
	if err := s.bad(); err != nil {
		return 0, err
	}
	c, err := s.manager.core.Read(ctx, func() *script.Call { return available(s.key) })
	if err != nil {
		return 0, err
	}
	n, err := c.Int()
	return int(n), err
}

// Drain acquires all permits that are available, and returns their number. It does not affect permits that others hold.
//
// After an error the call holds no permits: what a late reply grants, or what is not confirmed (see
// redlatch.WithReplicas), is released in the background. It blocks and fails otherwise as [Semaphore] describes, and
// costs one round trip.
func (s *Semaphore) Drain(ctx context.Context) (int, error) {
	err := s.check(ctx, 1)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, s.wrap("drain", err)
	}
	ask := counter.Request{Code: drainAll, Policy: counter.Grant, Then: drain{manager: s.manager, key: s.key}}
	n, err := s.manager.counter.Do(ctx, s.key, ask)
	if n > 0 && errors.Is(err, errs.ErrNotConfirmed) {
		n, err = 0, fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	return int(n), s.wrap("drain", err)
}

// AddPermits adds delta permits to those that are available, and wakes waiters. A negative delta removes permits; the
// number available may then be negative until others release theirs. A delta of 0 is redlatch.ErrInvalid. It creates a
// semaphore that does not exist.
//
// It blocks and fails as [Semaphore] describes, and costs one round trip. A repeated call adds delta once more.
func (s *Semaphore) AddPermits(ctx context.Context, delta int) error {
	err := s.check(ctx, 1)
	if err == nil && (delta == 0 || delta < -math.MaxInt32 || delta > math.MaxInt32) {
		err = fmt.Errorf("%w: delta %d is 0 or not between -%d and %d", errs.ErrInvalid, delta, math.MaxInt32, math.MaxInt32)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		_, err = s.manager.change(ctx, s.key, addOf(delta), int64(delta), counter.Change)
	}
	return s.wrap("add permits", err)
}

// check validates a call before any I/O.
func (s *Semaphore) check(ctx context.Context, n int) error {
	if err := s.bad(); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	return checkCount("count", n)
}

// bad returns the error of the name or the options.
func (s *Semaphore) bad() error { return s.err }

// checkAcquire validates an acquiring call. A done ctx takes precedence over everything except bad arguments.
func (s *Semaphore) checkAcquire(ctx context.Context, n int) error {
	if err := s.check(ctx, n); err != nil {
		return err
	}
	if s.most > 0 && n > s.most {
		return fmt.Errorf("%w: %d permits are more than the maximum of %d", errs.ErrInvalid, n, s.most)
	}
	return ctx.Err()
}

func (s *Semaphore) wrap(verb string, err error) error {
	return errs.Wrap("rsemaphore", verb, s.Name(), err)
}
