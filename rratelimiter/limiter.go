package rratelimiter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// MaxKey is the longest key that a limiter takes, in bytes.
const MaxKey = core.MaxKey

// Limiter lets events pass at a rate, each key on its own. It has no state: any number of goroutines may use one, and
// those of the same name in all processes share their tokens. It is safe for concurrent use.
type Limiter struct {
	core    *core.Core
	manager *manager
	meter   meter
	name    string // with the client's prefix
	rate    Rate
	opts    options
	err     error
}

// New returns the rate limiter with this name, as client.GetRateLimiter does. client is a *redlatch.Client. It does no
// I/O and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string, rate Rate, opts ...Option) *Limiter {
	c := core.Of(client)
	l := &Limiter{core: c, manager: core.Manager(c, newManager), name: c.Prefix + name, rate: rate}
	l.err = cmp.Or(core.CheckUserName(name, l.name), option.Apply(opts, &l.opts, Option.set))
	if !l.opts.bursts {
		l.opts.burst = rate.count
	}
	if l.err == nil {
		l.err = rate.validate(l.opts)
	}
	switch {
	case l.err != nil:
	case rate.window:
		l.meter = window{rate.count, rate.period}
	default:
		l.meter = bucket{rate, rate.span(l.opts.burst)}
	}
	return l
}

// Name returns the limiter's name as it was given to the client.
func (l *Limiter) Name() string { return l.core.UserName(l.name) }

// Rate returns how many tokens come back in which time, or are in a window of which length.
func (l *Limiter) Rate() (n int, period time.Duration) { return l.rate.count, l.rate.period }

// Burst returns the capacity, which is that of the window for [Window].
func (l *Limiter) Burst() int { return l.opts.burst }

// Result is the answer of [Limiter.Allow] and [Limiter.Info].
type Result struct {
	// Allowed reports whether the tokens were taken, or for Info whether they are there.
	Allowed bool
	// Remaining is how many tokens may be taken now.
	Remaining int
	// RetryAfter is after which time the tokens are there, if nobody takes any meanwhile; 0 if Allowed.
	RetryAfter time.Duration
	// ResetAfter is after which time all tokens are there again, if nobody takes any.
	ResetAfter time.Duration
}

// Allow takes n tokens of a key, if so many are there, and reports what is left. It does not wait for tokens. The key is
// 1 to 512 bytes long.
//
// It waits for Redis until ctx is done, at most about 3 s, or the call timeout if that is less (see
// redlatch.WithCallTimeout). n below 1 is redlatch.ErrInvalid, and above the capacity [ErrExceeds]. A call without an
// answer is not repeated: its error is redlatch.ErrUnknown if the tokens may have been taken, and redlatch.ErrUnavailable
// if they were not. It costs one round trip, which concurrent calls share. Before it, it waits up to 250 ms for what a
// [Limiter.Wait] of this client for the key is giving back.
func (l *Limiter) Allow(ctx context.Context, key string, n int) (Result, error) {
	if err := l.check(ctx, key, n); err != nil {
		return Result{}, l.wrap("allow", err)
	}
	ctx, call := l.begin(ctx)
	full := l.key(key)
	l.manager.settle(ctx, full)
	t, err := l.send(ctx, full, n, 0, nil)
	call.End(ctx, "", 1, outcome(t, err))
	if err != nil {
		return Result{}, l.wrap("allow", err)
	}
	r := Result{Allowed: t.ok, Remaining: t.remaining, ResetAfter: t.reset}
	if !t.ok {
		r.RetryAfter = t.wait
	}
	return r, nil
}

// Info returns whether Allow would take n tokens of a key, and when it would, and takes none. The rate is the limiter's,
// as for Allow: Redis does not know any.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. A bad key or n is refused as by Allow. It costs one round trip. Before
// it, it waits as Allow does, up to 250 ms.
func (l *Limiter) Info(ctx context.Context, key string, n int) (Result, error) {
	if err := l.check(ctx, key, n); err != nil {
		return Result{}, l.wrap("info", err)
	}
	full := l.key(key)
	l.manager.settle(ctx, full)
	call, err := l.core.Read(ctx, func() *script.Call { return l.meter.look(full, n) })
	if err != nil {
		return Result{}, l.wrap("info", err)
	}
	t, err := l.meter.read(call)
	if err != nil {
		return Result{}, l.wrap("info", err)
	}
	return Result{Allowed: t.wait == 0, Remaining: t.remaining, RetryAfter: t.wait, ResetAfter: t.reset}, nil
}

// Wait takes n tokens of a key, and blocks until they are there. It reserves them at once: waiters get theirs in the order
// in which Redis has seen them, and no Allow takes them away.
//
// It also ends when ctx is done, with ctx's error, and when the client closes (redlatch.ErrClosed). The tokens are given
// back then if nobody has taken any since; otherwise, and if Redis does not answer, they are lost, and the rate is not
// reached. The next calls of this client for the key see them, though for that they may wait for Redis for 250 ms. It
// returns [ErrExceeds] at once, and takes nothing, if n is above the capacity, or if the deadline of ctx is before the
// tokens are there. Other errors and costs are those of Allow.
func (l *Limiter) Wait(ctx context.Context, key string, n int) error {
	if err := l.check(ctx, key, n); err != nil {
		return l.wrap("wait", err)
	}
	ctx, call := l.begin(ctx)
	t, err := l.wait(ctx, l.key(key), n)
	call.End(ctx, "", 1, outcome(t, err))
	if err == nil && !t.ok {
		err = fmt.Errorf("%w before the deadline of the context: it takes %v", ErrExceeds, t.wait)
	}
	return l.wrap("wait", err)
}

// wait is Wait, except that tokens which are not there before the deadline are no error.
func (l *Limiter) wait(ctx context.Context, full string, n int) (taken, error) {
	l.manager.settle(ctx, full)
	longest := -time.Microsecond // any
	if deadline, ok := ctx.Deadline(); ok {
		longest = max(time.Until(deadline), 0)
	}
	if !l.core.Admit() { // until the reservation is used or given back
		return taken{}, errs.ErrClosed
	}
	defer l.core.End()
	t, err := l.send(ctx, full, n, longest, &late{manager: l.manager, key: full, of: func(c *script.Call) *script.Call {
		t, err := l.meter.read(c)
		if err != nil || !t.ok {
			return nil
		}
		return l.meter.giveBack(full, n, t)
	}})
	if err == nil && t.ok {
		err = l.sleep(ctx, t.wait)
	}
	if err != nil && t.ok {
		l.manager.send(l.meter.giveBack(full, n, t), l.manager.begin(full))
	}
	return t, err
}

// begin tells an observer that a call begins to take tokens.
func (l *Limiter) begin(ctx context.Context) (context.Context, events.Acquisition) {
	return l.core.Events.BeginAcquire(ctx, kinds.Limiter, l.Name())
}

// outcome is the error by which an observer learns what came of a call.
func outcome(t taken, err error) error {
	if err == nil && !t.ok {
		return errs.ErrNotAcquired
	}
	return err
}

func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.core.Closing():
		return errs.ErrClosed
	}
}

func (l *Limiter) check(ctx context.Context, key string, n int) error {
	if l.err != nil {
		return l.err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	if err := core.CheckKey(key); err != nil {
		return err
	}
	switch {
	case n < 1:
		return fmt.Errorf("%w: %d tokens are fewer than 1", errs.ErrInvalid, n)
	case n > l.opts.burst:
		return fmt.Errorf("%w: %d tokens, and the capacity is %d", ErrExceeds, n, l.opts.burst)
	}
	return nil
}

func (l *Limiter) send(ctx context.Context, full string, n int, longest time.Duration, late pipeline.Listener) (taken, error) {
	call, err := l.core.OnceOrLate(ctx, func() *script.Call { return l.meter.take(full, n, longest) }, late)
	if err != nil {
		return taken{}, err
	}
	return l.meter.read(call)
}

// key returns the Redis key of a limit.
func (l *Limiter) key(key string) string {
	if l.rate.window {
		return core.Keyed("redlatch_window:", l.name, key)
	}
	return core.Keyed("redlatch_rate:", l.name, key)
}

func (l *Limiter) wrap(verb string, err error) error {
	return errs.Wrap("rratelimiter", verb, l.Name(), err)
}
