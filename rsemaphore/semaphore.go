package rsemaphore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// releaseLimit is how long a Release waits whose context was done before it began.
const releaseLimit = 3 * time.Second

// Semaphore is a number of permits that many processes share. Permits belong to nobody: another process may release
// what this one acquired, and the permits of a process that dies are gone until someone adds them. A [PermitSemaphore]
// gets them back by itself.
//
// A Semaphore has no state: any number of goroutines may use one, and two of the same name from one client are the same
// semaphore, except for [WithMax]. [Semaphore.Acquire] waits, [Semaphore.TryAcquire] does not. It is safe for
// concurrent use.
//
// Every operation takes effect exactly once. One whose reply is lost is repeated until it is answered, ctx is done, the
// client closes, or, if ctx has no deadline, the call timeout is over (see redlatch.WithCallTimeout; a lease for
// Acquire). After redlatch.ErrUnknown it may have taken effect, or may still. If Redis refuses the repetition for good,
// as without permission, the call returns redlatch.ErrUnknown and the repetition goes on in the background. A name that
// another kind of object uses is redlatch.ErrWrongType. Counts are from 1 to 2³¹-1; others are redlatch.ErrInvalid.
type Semaphore struct {
	desk *manager
	key  string
	most int // 0 for no limit
	err  error
}

// NewSemaphore returns the named semaphore of a client. It is for the client: users call GetSemaphore there.
func NewSemaphore(c *core.Core, name string, opts ...Option) *Semaphore {
	d := core.Manager(c, newManager)
	s := &Semaphore{desk: d, key: d.core.Prefix + name}
	o, err := collect(opts, usesMax)
	if o.max != nil {
		s.most = *o.max
	}
	switch {
	case name == "":
		s.err = core.CheckName("")
	case core.CheckName(s.key) != nil:
		s.err = core.CheckName(s.key)
	default:
		s.err = err
	}
	return s
}

// Name returns the semaphore's name as it was given to the client.
func (s *Semaphore) Name() string { return s.desk.core.UserName(s.key) }

// TrySetPermits makes n permits available if the semaphore does not exist yet, and reports whether it did. A semaphore exists from then on,
// or from the first Release or AddPermits on, also with 0 permits. It waits, fails and costs as AddPermits does.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	err := s.check(ctx, n)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return false, s.wrap("try set permits", err)
	}
	set, err := s.desk.change(ctx, s.key, setOf(n), int64(n), counter.Change)
	return set == 1, s.wrap("try set permits", err)
}

// Acquire takes n permits, all at once.
//
// It blocks until so many are available and everybody before it in this client's line has been served, until ctx is done, the client closes
// (redlatch.ErrClosed), or an error that cannot pass, such as a missing permission; on the first try a refused connection too. What Redis
// cannot do just now (it loads, or fails over) is retried for one lease of the client; once the call was refused, refused connections too, and
// for about two leases. No lease bounds the repetition of a try whose reply was lost: see [Semaphore]. A semaphore that was never
// given permits is waited for. After an error the call has no permits: what it was granted when it had already given up is given back in
// the background.
//
// It costs one round trip when the permits are there. A client's waiters cost one more when there may be enough for the first of them,
// and one about every second.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	err := s.checkAcquire(ctx, n)
	if err == nil {
		_, err = s.desk.acquire(ctx, s.key, n, nil)
	}
	return s.wrap("acquire", err)
}

// TryAcquire takes n permits if they are available now, or become so within the time of [WithWait], and reports whether it did. Without
// a wait it is false at once when others of this client wait in line; otherwise it asks once, and waits for the answer as long as
// Acquire would. With a wait a silent Redis is no error: it is false when the wait is over. It fails as Acquire does.
//
// It costs one round trip, or none.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (bool, error) {
	o, err := collect(opts, usesWait)
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
	acquired, err := s.desk.acquire(ctx, s.key, n, &wait)
	return acquired, s.wrap("try acquire", err)
}

// Release makes n permits available and wakes who waits for them. Nobody checks that they were acquired: more may be released than were
// ever taken, unless [WithMax] says how many there are at most; then nothing changes and it returns [ErrOverRelease]. Releasing to a
// semaphore that does not exist makes it.
//
// It works although ctx is done: it then waits for 3 s at most. When ctx ends while it waits, the client closes or a repetition is refused,
// it returns redlatch.ErrUnknown with the cause, and the release goes on in the background. After any other error nothing was released.
//
// It costs one round trip.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	if err := s.check(ctx, n); err != nil {
		return s.wrap("release", err)
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
	done, err := s.desk.change(ctx, s.key, code, int64(n), counter.Insist)
	if err == nil && done == 0 {
		err = errs.ErrOverRelease
	}
	return s.wrap("release", err)
}

// Available returns how many permits can be acquired now: 0 for a semaphore that was never given any, and less than 0 when AddPermits
// took away more than there were.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. It costs one round trip.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	if err := s.bad(); err != nil {
		return 0, s.wrap("available", err)
	}
	c, err := s.desk.core.Read(ctx, func() *script.Call { return available(s.key) })
	if err != nil {
		return 0, s.wrap("available", err)
	}
	n, err := c.Int()
	return int(n), s.wrap("available", err)
}

// Drain takes all permits that are available and returns how many they were. It takes nothing from who has some already. It costs one
// round trip; after redlatch.ErrUnknown they may be taken or be taken yet.
func (s *Semaphore) Drain(ctx context.Context) (int, error) {
	err := s.check(ctx, 1)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, s.wrap("drain", err)
	}
	n, err := s.desk.change(ctx, s.key, drainAll, 0, counter.Change)
	return int(n), s.wrap("drain", err)
}

// AddPermits makes delta permits available beside those that there are, or takes as many away with a delta below 0; what is available may
// then be less than 0 until others release. It wakes waiters, and takes any delta but 0.
//
// It waits for Redis until ctx is done or the client closes. It costs one round trip; after redlatch.ErrUnknown it may have taken effect, or
// take effect yet, and after any other error it has not.
func (s *Semaphore) AddPermits(ctx context.Context, delta int) error {
	err := s.check(ctx, 1)
	if err == nil && (delta == 0 || delta < -math.MaxInt32 || delta > math.MaxInt32) {
		err = fmt.Errorf("%w: delta %d is 0, or beyond %d", errs.ErrInvalid, delta, math.MaxInt32)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		_, err = s.desk.change(ctx, s.key, addOf(delta), int64(delta), counter.Change)
	}
	return s.wrap("add permits", err)
}

// check judges a call before any I/O.
func (s *Semaphore) check(ctx context.Context, n int) error {
	if err := s.bad(); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	return checkCount("count", n)
}

// bad returns what is wrong with the semaphore itself.
func (s *Semaphore) bad() error { return s.err }

// checkAcquire judges an acquiring call. A done ctx wins over everything but bad arguments.
func (s *Semaphore) checkAcquire(ctx context.Context, n int) error {
	if err := s.check(ctx, n); err != nil {
		return err
	}
	if s.most > 0 && n > s.most {
		return fmt.Errorf("%w: %d permits are more than the %d that there are", errs.ErrInvalid, n, s.most)
	}
	return ctx.Err()
}

func (s *Semaphore) wrap(verb string, err error) error {
	return errs.Wrap("rsemaphore", verb, s.Name(), err)
}

var _ counter.Answerer = (*handing)(nil)
