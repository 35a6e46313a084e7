package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rsemaphore"
)

// awayCall is a call that is made while Redis is away, on an object of its own that was used before.
type awayCall struct {
	name string
	// prepare returns the call. The holder's client reaches Redis directly until it is away.
	prepare func(t *testing.T, c, holder *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error
}

var awayCalls = []awayCall{
	{"Lock", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := lock(c).Lock(ctx); return err }
	}},
	{"Do", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error { return lock(c).Do(ctx, func(context.Context) error { return nil }) }
	}},
	{"TryLock with a wait", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := lock(c).TryLock(ctx, rlock.WithWait(time.Minute))
			return err
		}
	}},
	{"TryLock", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := lock(c).TryLock(ctx); return err }
	}},
	{"Lock of a taken lock", func(t *testing.T, c, holder *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		_, err := lock(holder).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error { _, err := lock(c).Lock(ctx); return err }
	}},
	{"TryLock with a wait of a taken lock", func(t *testing.T, c, holder *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		_, err := lock(holder).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error {
			_, err := lock(c).TryLock(ctx, rlock.WithWait(time.Minute))
			return err
		}
	}},
	{"TryLock of a lock that was used", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		locktest.Free(t, lock(c))
		return func(ctx context.Context) error { _, err := lock(c).TryLock(ctx); return err }
	}},
	{"Lock under a hold", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		hold, err := lock(c).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error { _, err := lock(c).Lock(under{ctx, hold.Context()}); return err }
	}},
	{"Extend", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		hold, err := lock(c).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error { return hold.Extend(ctx, time.Hour) }
	}},
	{"Unlock", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		hold, err := lock(c).Lock(t.Context())
		require.NoError(t, err)
		return hold.Unlock
	}},
}

// awayOthers are calls on objects that are no locks: with permits to acquire, a permit held, or a count.
func awayOthers(t *testing.T, c, holder *redlatch.Client) map[string]func(ctx context.Context) error {
	t.Helper()
	semaphore := func(name string, n int) *rsemaphore.Semaphore {
		require.NoError(t, holder.GetSemaphore(name).AddPermits(t.Context(), 5))
		require.NoError(t, holder.GetSemaphore(name).Acquire(t.Context(), 5-n))
		return c.GetSemaphore(name)
	}
	permits := func(name string, n int) *rsemaphore.PermitSemaphore {
		require.NoError(t, holder.GetPermitSemaphore(name).SetPermits(t.Context(), 5))
		_, err := holder.GetPermitSemaphore(name).AcquireN(t.Context(), 5-n)
		require.NoError(t, err)
		return c.GetPermitSemaphore(name)
	}
	permit := func(name string) *rsemaphore.Permit {
		p, err := permits(name, 4).Acquire(t.Context())
		require.NoError(t, err)
		return p
	}
	latch := func(name string) *rlatch.Latch {
		_, err := holder.GetCountDownLatch(name).TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		return c.GetCountDownLatch(name)
	}
	semaphores := map[string]*rsemaphore.Semaphore{"semaphore": semaphore("semaphore", 1), "taken semaphore": semaphore("taken semaphore", 0)}
	leased := map[string]*rsemaphore.PermitSemaphore{"permits": permits("permits", 1), "taken permits": permits("taken permits", 0)}
	extended, released := permit("extended"), permit("released")
	counted, uncounted := latch("counted"), c.GetCountDownLatch("uncounted")
	queue := redlatch.GetDelayedQueue[string](c, "queue")
	offered, err := queue.Offer(t.Context(), "x", time.Hour)
	require.NoError(t, err)
	once := redlatch.GetOnce[string](c, "once")
	calls := map[string]func(ctx context.Context) error{
		"permit Extend":       func(ctx context.Context) error { return extended.Extend(ctx, time.Hour) },
		"permit Release":      released.Release,
		"latch Await":         counted.Await,
		"latch AwaitSet":      uncounted.AwaitSet,
		"latch CountDown":     latch("down").CountDown,
		"latch CountDownOnce": func(ctx context.Context) error { _, err := counted.CountDownOnce(ctx, "one"); return err },
		"queue Take":          func(ctx context.Context) error { _, err := queue.Take(ctx); return err },
		"queue TakeBatch":     func(ctx context.Context) error { _, err := queue.TakeBatch(ctx, 3); return err },
		"latch TrySetCount":   func(ctx context.Context) error { _, err := uncounted.TrySetCount(ctx, 1); return err },
		"queue Offer":         func(ctx context.Context) error { _, err := queue.Offer(ctx, "x", 0); return err },
		"queue Cancel":        func(ctx context.Context) error { _, err := queue.Cancel(ctx, offered); return err },
		"once Do": func(ctx context.Context) error {
			_, _, err := once.Do(ctx, "k", func(context.Context) (string, error) { return "made", nil })
			return err
		},
		"once Peek":   func(ctx context.Context) error { _, _, err := once.Peek(ctx, "k"); return err },
		"once Forget": func(ctx context.Context) error { return once.Forget(ctx, "k") },
	}
	maps.Copy(calls, awayNewer(c))
	maps.Copy(calls, awayLed(t, c, holder))
	maps.Copy(calls, awayEntered(t, c))
	for name, s := range semaphores {
		maps.Copy(calls, map[string]func(ctx context.Context) error{
			name + " Acquire":    func(ctx context.Context) error { return s.Acquire(ctx, 1) },
			name + " TryAcquire": func(ctx context.Context) error { _, err := s.TryAcquire(ctx, 1); return err },
			name + " TryAcquire with a wait": func(ctx context.Context) error {
				_, err := s.TryAcquire(ctx, 1, rsemaphore.WithWait(time.Minute))
				return err
			},
			name + " Release": func(ctx context.Context) error { return s.Release(ctx, 1) },
		})
	}
	for name, s := range leased {
		maps.Copy(calls, map[string]func(ctx context.Context) error{
			name + " Acquire":    func(ctx context.Context) error { _, err := s.Acquire(ctx); return err },
			name + " AcquireN":   func(ctx context.Context) error { _, err := s.AcquireN(ctx, 2); return err },
			name + " TryAcquire": func(ctx context.Context) error { _, err := s.TryAcquire(ctx); return err },
			name + " TryAcquire with a wait": func(ctx context.Context) error {
				_, err := s.TryAcquire(ctx, rsemaphore.WithWait(time.Minute))
				return err
			},
			name + " SetPermits": func(ctx context.Context) error { return s.SetPermits(ctx, 9) },
		})
	}
	return calls
}

// awayNewer are calls on objects that nobody holds, and candidates.
func awayNewer(c *redlatch.Client) map[string]func(ctx context.Context) error {
	election, jobs := c.GetElection("election"), c.GetScheduler("scheduler")
	limiter := c.GetRateLimiter("limiter", rratelimiter.Per(100, time.Second))
	ids, barrier := c.GetIDGenerator("ids"), c.GetBarrier("barrier", 2)
	topic, topics := redlatch.GetTopic[string](c, "topic"), redlatch.GetPatternTopic[string](c, "topic*")
	return map[string]func(ctx context.Context) error{
		"election Campaign":   func(ctx context.Context) error { _, err := election.Campaign(ctx); return err },
		"election Leader":     func(ctx context.Context) error { _, err := election.Leader(ctx); return err },
		"election Candidates": func(ctx context.Context) error { _, err := election.Candidates(ctx); return err },
		"scheduler Trigger":   func(ctx context.Context) error { return jobs.Trigger(ctx, "job") },
		"scheduler Pause":     func(ctx context.Context) error { return jobs.Pause(ctx, "job", "why") },
		"scheduler Resume":    func(ctx context.Context) error { return jobs.Resume(ctx, "job") },
		"scheduler Jobs":      func(ctx context.Context) error { _, err := jobs.Jobs(ctx); return err },
		"scheduler Runs":      func(ctx context.Context) error { _, err := jobs.Runs(ctx, "job", 1); return err },
		"scheduler Remove":    func(ctx context.Context) error { _, err := jobs.Remove(ctx, "job"); return err },
		"limiter Allow":       func(ctx context.Context) error { _, err := limiter.Allow(ctx, "k", 1); return err },
		"limiter Wait":        func(ctx context.Context) error { return limiter.Wait(ctx, "k", 1) },
		"limiter Info":        func(ctx context.Context) error { _, err := limiter.Info(ctx, "k", 1); return err },
		"ids Next":            func(ctx context.Context) error { _, err := ids.Next(ctx); return err },
		"barrier Await":       barrier.Await,
		"barrier Info":        func(ctx context.Context) error { _, err := barrier.Info(ctx); return err },
		"topic Publish":       func(ctx context.Context) error { _, err := topic.Publish(ctx, "x"); return err },
		"topic Subscribe":     func(ctx context.Context) error { _, err := topic.Subscribe(ctx); return err },
		"topic Info":          func(ctx context.Context) error { _, err := topic.Info(ctx); return err },
		"topics Subscribe":    func(ctx context.Context) error { _, err := topics.Subscribe(ctx); return err },
	}
}

// awayLed are calls of leaders, and on an election and a key that somebody else has.
func awayLed(t *testing.T, c, holder *redlatch.Client) map[string]func(ctx context.Context) error {
	t.Helper()
	lead := func(c *redlatch.Client, name string) *relection.Leadership {
		l, err := c.GetElection(name).Campaign(t.Context())
		require.NoError(t, err)
		return l
	}
	proclaims, resigns := lead(c, "proclaiming"), lead(c, "resigning")
	lead(holder, "led")
	led, once := c.GetElection("led"), redlatch.GetOnce[string](c, "once")
	kept := func(context.Context) (string, error) { return "kept", nil }
	_, _, err := redlatch.GetOnce[string](holder, "once").Do(t.Context(), "kept", kept)
	require.NoError(t, err)
	return map[string]func(ctx context.Context) error{
		"leadership Proclaim": func(ctx context.Context) error { return proclaims.Proclaim(ctx, "value") },
		"leadership Resign":   resigns.Resign,
		"led Campaign":        func(ctx context.Context) error { _, err := led.Campaign(ctx); return err },
		"led Leader":          func(ctx context.Context) error { _, err := led.Leader(ctx); return err },
		"kept Do":             func(ctx context.Context) error { _, _, err := once.Do(ctx, "kept", kept); return err },
		"kept Peek":           func(ctx context.Context) error { _, _, err := once.Peek(ctx, "kept"); return err },
	}
}

// awayEntered are calls of participants of double barriers, one outside and one inside.
func awayEntered(t *testing.T, c *redlatch.Client) map[string]func(ctx context.Context) error {
	t.Helper()
	enters, leaves := c.GetDoubleBarrier("entering", 2), c.GetDoubleBarrier("leaving", 1)
	require.NoError(t, leaves.Enter(t.Context()))
	return map[string]func(ctx context.Context) error{
		"double barrier Enter": enters.Enter,
		"double barrier Leave": leaves.Leave,
	}
}

// under is a context that ends with one and descends from the hold of another.
type under struct {
	context.Context
	hold context.Context
}

func (u under) Value(key any) any {
	if v := u.hold.Value(key); v != nil {
		return v
	}
	return u.Context.Value(key)
}

// away are the ways in which Redis is away.
var away = map[string]func(t *testing.T, p *faulttest.Proxy, s *redistest.Server) (back func()){
	"frozen": func(_ *testing.T, _ *faulttest.Proxy, s *redistest.Server) func() {
		s.Pause()
		return s.Resume
	},
	"blackhole": func(_ *testing.T, p *faulttest.Proxy, _ *redistest.Server) func() {
		p.Blackhole(true)
		return func() { p.Blackhole(false) }
	},
	"half-open": func(_ *testing.T, p *faulttest.Proxy, _ *redistest.Server) func() { // each command runs, and nobody hears of it
		asks := faulttest.Named("EVAL", "EVALSHA", "SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE", "PUBSUB")
		p.OnCommand(func(cmd []string) {
			if asks(cmd) {
				p.HalfOpen()
			}
		})
		return func() { p.OnCommand(nil) }
	},
	"refused": func(_ *testing.T, p *faulttest.Proxy, _ *redistest.Server) func() {
		p.Refuse(true)
		p.Cut()
		return func() { p.Refuse(false) }
	},
	"killed": func(_ *testing.T, _ *faulttest.Proxy, s *redistest.Server) func() {
		s.Kill()
		return s.Restart // empty
	},
}

// F16, F25, F27: a call ends with its context, and says that Redis did not answer, not that somebody has it. Once Redis is back it says who does.
func TestEveryCallEndsWithItsContextWhileRedisIsAway(t *testing.T) {
	redistest.Long(t)
	const patience, slack = 300 * time.Millisecond, 50 * time.Millisecond
	kinds := allKinds()
	for fault, leave := range away {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := faulttest.NewProxy(t, server.Addr())
			connect := func(addr string) *redlatch.Client {
				rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 100})
				c, err := redlatch.New(rdb, redlatch.WithCloseGrace(0))
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close(); assert.NoError(t, rdb.Close()) })
				return c
			}
			c, stays, holder := connect(proxy.Addr()), connect(proxy.Addr()), connect(server.Addr())
			for kind, get := range kinds {
				locktest.Free(t, get(stays, kind))
			}
			calls := awayOthers(t, c, holder)
			for kind, get := range kinds {
				for _, call := range awayCalls {
					name := kind + " " + call.name
					taker := holder
					lock := func(c *redlatch.Client) rlock.Locker {
						if kind == "reader" && c == taker {
							return rival(kind, c, name) // a writer keeps out a reader
						}
						return get(c, name)
					}
					calls[name] = call.prepare(t, c, holder, lock)
				}
			}
			lag := faulttest.MeasureLag(t, "")
			back := leave(t, proxy, server)
			isAway := true
			defer func() {
				if isAway {
					back()
				}
			}()
			var running sync.WaitGroup
			for name, call := range calls {
				running.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					started := time.Now()
					err := call(ctx)
					assert.Less(t, time.Since(started), patience+slack+lag.Late(), name)
					// A goroutine that comes late has asked nobody.
					late := errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rlock.ErrNotAcquired) && lag.Worst() > patience/3
					unanswered := errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown) || late
					assert.True(t, unanswered, "%s: %v", name, err)
					if fault != "refused" && fault != "killed" { // there is no Redis: a call may say so at once
						assert.ErrorIs(t, err, context.DeadlineExceeded, name)
					}
				})
			}
			running.Wait()
			started := time.Now()
			require.NoError(t, c.Close())
			assert.Less(t, time.Since(started), 3*time.Second+slack+lag.Late(), "Close without a grace")

			back()
			isAway = false
			for kind, get := range kinds {
				busy := kind + " busy"
				locktest.Acquire(t, t.Context(), get(holder, busy), rlock.WithFixedLease(time.Hour))
				lock := get(stays, busy)
				if kind == "reader" {
					lock = rival(kind, stays, busy)
				}
				redistest.Eventually(t, 10*time.Second, kind+" is busy", func() error {
					_, err := lock.TryLock(t.Context(), rlock.WithWait(20*time.Millisecond))
					if errors.Is(err, rlock.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUnavailable) {
						return nil
					}
					return fmt.Errorf("it is not: %w", err)
				})
			}
		})
	}
}
