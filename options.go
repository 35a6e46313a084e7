package redlatch

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// Option is a setting of a client.
type Option func(*core.Config)

func defaults() core.Config {
	return core.Config{
		Lease:         30 * time.Second,
		HandoffBudget: 2 * time.Millisecond,
		TokenTTL:      24 * time.Hour,
		CloseGrace:    5 * time.Second,
		CallTimeout:   10 * time.Second,
		Logger:        slog.Default(),
	}
}

// WithWatchdogTimeout sets the lease of holds and permits that the watchdog renews: how long Redis keeps one after its process
// died. The watchdog renews it every third of d. From 10 ms to 24 h. Defaults to 30 s. It is Redisson's lockWatchdogTimeout.
func WithWatchdogTimeout(d time.Duration) Option { return func(c *core.Config) { c.Lease = d } }

// WithNamePrefix puts s before the name of every object. Other clients, in Java by a NameMapper, must do the same to share them.
// Defaults to none.
func WithNamePrefix(s string) Option { return func(c *core.Config) { c.Prefix = s } }

// WithLogger sets where the client logs what no caller can receive. Go-redis has a logger of its own, see redis.SetLogger. Defaults
// to [slog.Default].
func WithLogger(l *slog.Logger) Option { return func(c *core.Config) { c.Logger = l } }

// WithoutPipelining sends every call in a round trip of its own. By default calls that arrive while others are under way share one.
func WithoutPipelining() Option { return func(c *core.Config) { c.Plain = true } }

// WithFairWaitTimeout sets how long a waiter of a fair lock keeps its place after it died. From 100 ms to 5 min. Defaults to 5 s, or
// to Redisson's 5 min with [WithRedissonFairQueue].
func WithFairWaitTimeout(d time.Duration) Option { return func(c *core.Config) { c.FairWait = &d } }

// WithRedissonFairQueue keeps the queue of a fair lock as Redisson does, so that Java's waiters and this client's stand in one queue.
// All clients of the lock must use the same timeout. Each waiter that died costs a timeout of its own. By default dead waiters are
// passed over together, and Java's waiters are not taken into account.
func WithRedissonFairQueue() Option { return func(c *core.Config) { c.RedissonQueue = true } }

// WithHandoffBudget sets for how long a client may pass a lock among its own goroutines before it lets other clients compete. A
// waiter elsewhere waits at most d longer for each client that contends. From 0, which turns it off, to the watchdog timeout.
// Defaults to 2 ms.
func WithHandoffBudget(d time.Duration) Option {
	return func(c *core.Config) { c.HandoffBudget = d }
}

// WithTokenTTL sets how long Redis keeps the last fencing token of a lock that is not used. Tokens rise also when it is gone, as
// long as the servers' clocks do not step back. At least 1 s, at most ten years. Defaults to 24 h.
func WithTokenTTL(d time.Duration) Option { return func(c *core.Config) { c.TokenTTL = d } }

// WithCloseGrace sets how long Close waits for holders to unlock. 0 to 10 min. Defaults to 5 s.
func WithCloseGrace(d time.Duration) Option { return func(c *core.Config) { c.CloseGrace = d } }

// WithCallTimeout bounds each call whose context has no deadline and that does not wait for somebody: TryLock without a wait, Extend,
// IsLocked and its like, TrySetPermits, Release, CountDown, Offer, Ack, Stats, Open and so on. When it is over the call returns
// [ErrUnavailable], or [ErrUnknown] if Redis may have done what was asked. Unlock and Release of a permit take 3 s at the most, or d if that is less.
// Calls that wait for somebody are not bounded: Lock, RLock, Do, RDo, Acquire, AcquireN, Await, AwaitSet, Take, TakeBatch and
// Consume. 10 ms to 1 h. Defaults to 10 s.
func WithCallTimeout(d time.Duration) Option { return func(c *core.Config) { c.CallTimeout = d } }

// WithAbandonOnClose leaves what is still held when the close grace is over to its lease. By default Close releases it.
func WithAbandonOnClose() Option { return func(c *core.Config) { c.Abandon = true } }

// WithObserver has the client tell o what happens, for metrics and traces. Defaults to none.
func WithObserver(o Observer) Option { return func(c *core.Config) { c.Hooks = core.Hooks(o) } }

// Observer is a set of functions that a client calls, each of which may be nil. They are called on the goroutine on which the thing
// happened, which they hold up: they must return at once. Kind is the name of the object's package, name that of the object. A multi-lock
// and a RedLock are told of as their parts.
type Observer struct {
	// Acquired: a call acquired a lock, a leased permit (of several each counts) or permits of a semaphore, after it had waited for so
	// long. Nested levels do not count, nor does a lock that came as its call gave up: that one is
	// told of, if at all, as released.
	Acquired func(kind, name string, waited time.Duration)
	// Released: the last level of a lock's hold was unlocked, or a leased permit released, or Redis could not be told, after the client
	// had it for so long. Permits of a semaphore, which belong to nobody, do not count.
	Released func(kind, name string, held time.Duration)
	// Lost: a lock's hold or a leased permit ended although nobody released it. A queue's messages do not count.
	Lost func(kind, name string, cause error)
	// Renewed: of a batch of holds so many were renewed, and so many were gone; after an err both are 0.
	Renewed func(renewed, lost int, err error)
	// Woken: while somebody waited a release of a lock or of permits was announced, that a latch opened or was set, or that a message of a
	// queue is due.
	Woken func(kind, name string)
	// Reconnected: the subscription connection was lost and is back; every waiter asks again.
	Reconnected func()
}

func configure(opts []Option) (core.Config, error) {
	c := defaults()
	for _, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("%w: an option is nil", errs.ErrInvalid)
		}
		opt(&c)
	}
	return c, validate(&c)
}

func validate(c *core.Config) error {
	if err := lease.CheckLease(c.Lease); err != nil {
		return err
	}
	if c.Prefix != "" {
		if err := core.CheckName(c.Prefix + "x"); err != nil {
			return fmt.Errorf("name prefix: of an object named x: %w", err)
		}
	}
	if c.Logger == nil || c.Logger.Handler() == nil {
		return fmt.Errorf("%w: the logger is nil, or has no handler", errs.ErrInvalid)
	}
	if err := between("fair wait timeout", c.FairTimeout(), 100*time.Millisecond, 5*time.Minute); err != nil {
		return err
	}
	if err := between("hand-off budget", c.HandoffBudget, 0, c.Lease); err != nil {
		return err
	}
	if err := between("token TTL", c.TokenTTL, time.Second, 10*365*24*time.Hour); err != nil {
		return err
	}
	if err := between("call timeout", c.CallTimeout, 10*time.Millisecond, time.Hour); err != nil {
		return err
	}
	return between("close grace", c.CloseGrace, 0, 10*time.Minute)
}

func between(what string, d, least, most time.Duration) error {
	if d < least {
		return fmt.Errorf("%w: %s %v is below %v", errs.ErrInvalid, what, d, least)
	}
	if d > most {
		return fmt.Errorf("%w: %s %v is above %v", errs.ErrInvalid, what, d, most)
	}
	return nil
}
