package redlatch

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/pipeline"
)

// Option is a setting of a client.
type Option interface{ set(c *core.Config) }

type setting func(*core.Config)

func (s setting) set(c *core.Config) { s(c) }

func defaults() core.Config {
	return core.Config{
		Lease:         30 * time.Second,
		HandoffBudget: 2 * time.Millisecond,
		CloseGrace:    5 * time.Second,
		CallTimeout:   10 * time.Second,
		Logger:        slog.Default(),
	}
}

// WithWatchdogTimeout sets the lease of renewed holds and permits: how long Redis keeps one after its process died. The
// client renews them every third of d. From 10 ms to 24 h. Defaults to 30 s. It is Redisson's lockWatchdogTimeout.
func WithWatchdogTimeout(d time.Duration) Option {
	return setting(func(c *core.Config) { c.Lease = d })
}

// WithNamePrefix puts s before the name of every object. Clients that share objects must use the same prefix, in Java
// with a NameMapper. Defaults to none.
func WithNamePrefix(s string) Option { return setting(func(c *core.Config) { c.Prefix = s }) }

// WithClientName sets what the client's id begins with, and so the owner ids of all that it holds: whoever looks at a key
// in Redis sees who has it. A name is 1 to 28 ASCII letters, digits, dots, hyphens and underscores. Several clients may
// have the same one. Defaults to the end of the host's name, a dot, and the number of the process.
func WithClientName(s string) Option { return setting(func(c *core.Config) { c.ClientName = &s }) }

// WithLogger sets the logger for errors that no caller can receive. A line is written on the goroutine on which something
// happened, which the handler holds up: it must return at once, and must not use the client. go-redis has a logger of its own,
// see redis.SetLogger. Defaults to [slog.Default].
func WithLogger(l *slog.Logger) Option { return setting(func(c *core.Config) { c.Logger = l }) }

// WithSlowLog logs, at the level WARN, each call to acquire a lock, permits or tokens that waited for wait or longer, also
// without success but not if it was cancelled, and each hold or leased permit that was released after hold or longer. From
// 0, which logs none, to ten years. Defaults to 0 for both.
func WithSlowLog(wait, hold time.Duration) Option {
	return setting(func(c *core.Config) { c.SlowWait, c.SlowHold = wait, hold })
}

// WithoutPresence keeps the client from listening to a channel of its own while it holds or waits for something: see
// [Client.Ask]. By default it listens.
func WithoutPresence() Option { return setting(func(c *core.Config) { c.WithoutPresence = true }) }

// WithCallSites has holds and waits know the file and the line that called, for [Client.Holds], [Client.Waits] and
// [Client.Ask]. For a call such as go queue.Consume(…) it is the line of the go statement. It costs a look at the stack for each lock,
// leased permit or call that claims messages, about a microsecond.
func WithCallSites() Option { return setting(func(c *core.Config) { c.CallSites = true }) }

// ShardedWakeups says through which channels waiters are woken. Sharded channels (SPUBLISH, from Redis 7 on) reach the
// nodes of one slot alone; plain ones reach every node of a cluster.
type ShardedWakeups uint8

const (
	// ShardedAuto takes sharded channels on a cluster, and plain ones on a node that is older than Redis 7.
	ShardedAuto ShardedWakeups = iota
	// ShardedAlways takes sharded channels on a single server too.
	ShardedAlways
	// ShardedNever takes plain channels.
	ShardedNever
)

// WithShardedWakeups sets through which channels waiters are woken; topics use plain ones in any case. All clients of an object must use the same
// channels; those that do not go on when they check again, locks after about a second, consumers of a queue after up to
// 15 s. Redisson's setting shardedSubscriptionMode has the same three values. Defaults to [ShardedAuto], as in Redisson.
func WithShardedWakeups(mode ShardedWakeups) Option {
	return setting(func(c *core.Config) { c.Wakeups = core.Wakeups(mode) })
}

// WithFairWaitTimeout sets how long a waiter of a fair lock keeps its place after its process died. From 100 ms to 5
// min. Defaults to 5 s, or to Redisson's 5 min with [WithRedissonFairQueue].
func WithFairWaitTimeout(d time.Duration) Option {
	return setting(func(c *core.Config) { c.FairWait = &d })
}

// WithRedissonFairQueue stores the queue of fair locks in Redisson's layout, so that this client's waiters and Java's
// share one queue. All clients of a lock must use the same timeout. Each dead waiter then costs a timeout of its own.
// By default dead waiters are skipped together, and a call that would wait behind Java's waiters fails with [ErrWrongType].
func WithRedissonFairQueue() Option { return setting(func(c *core.Config) { c.RedissonQueue = true }) }

// WithHandoffBudget sets for how long a client may pass a lock among its own goroutines before it lets other clients
// compete. A waiter elsewhere waits at most d longer for each client that contends. From 0, which turns this off, to
// the watchdog timeout. Defaults to 2 ms.
func WithHandoffBudget(d time.Duration) Option {
	return setting(func(c *core.Config) { c.HandoffBudget = d })
}

// WithTokenTTL sets how long Redis keeps the last fencing token of an unused lock, from 1 s to ten years; 0 keeps it for
// good. This library's tokens also rise after it expired, as long as the servers' clocks do not step back. Redisson's do
// not: it begins again at 1. So set a TTL only if no Java client uses the fenced locks, and if there are so many names
// that their keys, of about 100 bytes each, matter. Defaults to 0.
func WithTokenTTL(d time.Duration) Option { return setting(func(c *core.Config) { c.TokenTTL = d }) }

// WithReplicas makes calls wait until n replicas have what they wrote, for at most timeout (Redis's WAIT): those that acquire a lock or
// permit, offer a message, change a latch or semaphore, or take a block of ids. If fewer confirm it, the call returns [ErrNotConfirmed], a
// lock or permit is released again, and a block is not used. What a call without an error wrote survives a failover to a replica that confirmed it. It is no guarantee: that
// replica may restart empty, another one may be promoted, and a holder that is cut off believes in its lock for up to its lease. Only a
// fencing token excludes its late writes. Renewals, nested levels and releases do not wait; a Release of a counting semaphore may share
// a call that does. Data does not wait: what the packages of the grid write may be lost by a failover, and of a cache only the claim of a
// load waits.
//
// It costs a second write for each call, and the time that the replicas take; bounds on calls grow by the timeout. While fewer than n
// replicas are connected, each such call takes the whole timeout, even if the lock is taken, and calls queue: at most two pipelines of a
// node wait at a time. On a cluster, hooks of the go-redis client do not see these calls. n is from 1 to 100, the timeout from 1 ms to
// 1 s or, if that is less, a third of the watchdog timeout. Defaults to none.
func WithReplicas(n int, timeout time.Duration) Option {
	return setting(func(c *core.Config) { c.Replicas = &pipeline.Confirmation{Replicas: n, Timeout: timeout} })
}

// WithDurability has the calls that [WithReplicas] names wait until the master has written them to its append-only file and synced
// that, for at most timeout (WAITAOF, from Redis 7.2 and Valkey 7.2 on). They then survive a crash of the master's machine if it
// restarts with its file. A call that is not confirmed fails as with WithReplicas; without an append-only file, each one does. The
// timeout is from 1 ms to 2 s, or a third of the watchdog timeout; with appendfsync everysec a sync takes about a second. Defaults to
// none.
func WithDurability(timeout time.Duration) Option {
	return setting(func(c *core.Config) { c.Durability = &pipeline.Confirmation{Timeout: timeout} })
}

// WithCloseGrace sets how long Close waits for holders to unlock. From 0 to 10 min. Defaults to 5 s.
func WithCloseGrace(d time.Duration) Option {
	return setting(func(c *core.Config) { c.CloseGrace = d })
}

// WithCallTimeout bounds each call that does not wait for others and whose context has no deadline: TryLock without a
// wait, IsLocked and the like, TrySetPermits, CountDown, Release of a counting semaphore, Offer, Stats, Open and so
// on. After d the call returns [ErrUnavailable], or [ErrUnknown] if Redis may have done what was asked. Unlock and
// Release of holds and permits, a TryLock that nests, Ack, Nack, Reject and Snooze take 3 s or d, whichever is less.
// From 10 ms to 1 h. Defaults to 10 s.
//
// It does not bound calls that wait for others: Lock, RLock, Do, RDo, Acquire, AcquireN, Await, AwaitSet, Take,
// TakeBatch and Consume.
func WithCallTimeout(d time.Duration) Option {
	return setting(func(c *core.Config) { c.CallTimeout = d })
}

// WithAbandonOnClose leaves holds and permits that are still held after the close grace to their lease. By default
// Close releases them.
func WithAbandonOnClose() Option { return setting(func(c *core.Config) { c.Abandon = true }) }

func configure(opts []Option) (core.Config, error) {
	c := defaults()
	if err := option.Apply(opts, &c, Option.set); err != nil {
		return c, err
	}
	return c, validate(&c)
}

func validate(c *core.Config) error {
	if err := lease.CheckLease(c.Lease); err != nil {
		return err
	}
	if c.ClientName != nil {
		if err := core.CheckClientName(*c.ClientName); err != nil {
			return err
		}
	}
	if c.Prefix != "" {
		if err := core.CheckName(c.Prefix + "x"); err != nil {
			return fmt.Errorf("name prefix, with an object named x: %w", err)
		}
	}
	if c.Logger == nil || c.Logger.Handler() == nil {
		return fmt.Errorf("%w: the logger is nil, or has no handler", errs.ErrInvalid)
	}
	for _, h := range c.RedisHooks {
		if h == nil {
			return fmt.Errorf("%w: a hook is nil", errs.ErrInvalid)
		}
	}
	if c.Wakeups > core.WakeupsPlain {
		return fmt.Errorf("%w: %d is no value of ShardedWakeups", errs.ErrInvalid, c.Wakeups)
	}
	if err := errs.Between("fair wait timeout", c.FairTimeout(), 100*time.Millisecond, 5*time.Minute); err != nil {
		return err
	}
	if err := errs.Between("hand-off budget", c.HandoffBudget, 0, c.Lease); err != nil {
		return err
	}
	if c.TokenTTL != 0 {
		if err := errs.Between("token TTL", c.TokenTTL, time.Second, 10*365*24*time.Hour); err != nil {
			return err
		}
	}
	if c.Replicas != nil && (c.Replicas.Replicas < 1 || c.Replicas.Replicas > 100) {
		return fmt.Errorf("%w: %d replicas are not 1 to 100", errs.ErrInvalid, c.Replicas.Replicas)
	}
	for _, confirmation := range c.Confirmations() {
		most := time.Second
		if confirmation.Replicas == 0 {
			most = 2 * time.Second
		}
		if err := errs.Between("timeout of "+confirmation.Command(), confirmation.Timeout, time.Millisecond, min(most, c.Lease/3)); err != nil {
			return err
		}
	}
	if err := errs.Between("call timeout", c.CallTimeout, 10*time.Millisecond, time.Hour); err != nil {
		return err
	}
	for what, d := range map[string]time.Duration{"slow wait": c.SlowWait, "slow hold": c.SlowHold} {
		if err := errs.Between(what, d, 0, 10*365*24*time.Hour); err != nil {
			return err
		}
	}
	return errs.Between("close grace", c.CloseGrace, 0, 10*time.Minute)
}
