package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/grid/rsortedset"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rtopic"
)

// F28
func TestLocksOutliveAFullRedis(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	const lease = 3 * time.Second
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })

	inner, outer := map[string]*rlock.Hold{}, map[string]*rlock.Hold{}
	for kind, get := range allKinds() {
		l := get(c, kind)
		outer[kind] = locktest.Acquire(t, t.Context(), l)
		inner[kind] = locktest.Acquire(t, outer[kind].Context(), l)
	}
	rw := c.GetReadWriteLock("downgraded")
	outer["downgraded"] = locktest.Acquire(t, t.Context(), rw)
	inner["downgraded"] = locktest.Acquire(t, outer["downgraded"].Context(), rw.RLocker())

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = c.GetLock("another").TryLock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	over := time.After(3 * lease)
	for kind, hold := range inner {
		select {
		case <-hold.Context().Done():
			require.Fail(t, "lost", "%s: %v", kind, context.Cause(hold.Context()))
		case <-over:
			over = time.After(0)
		}
	}
	for kind, hold := range inner {
		require.NoError(t, context.Cause(hold.Context()), kind)
		if kind == "downgraded" {
			locktest.Unlock(t, outer[kind])
			locktest.Unlock(t, hold)
			continue
		}
		require.NoError(t, hold.Unlock(t.Context()), "a level of %s", kind)
		require.NoError(t, outer[kind].Unlock(t.Context()), kind)
		if kind != "RedLock" {
			assert.Zero(t, admin.Exists(t.Context(), kind).Val(), kind)
			continue
		}
		// Its Unlock waits for two of three parts.
		redistest.Eventually(t, lease/2, kind+" is free", func() error {
			n, err := admin.Exists(t.Context(), kind).Result()
			if err == nil && n > 0 {
				err = errors.New("its key exists")
			}
			return err
		})
	}
}

// F28
func TestWhatIsHeldOutlivesAFullRedis(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	const lease = 2 * time.Second
	client := func() *redlatch.Client {
		c, err := redlatch.New(server.Client(t), redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	holder, waiter := client(), client()
	var all []heldGuest
	for _, g := range guests(lease) {
		if g.name == "queue" {
			continue // its release offers a message
		}
		h := heldGuest{guest: g}
		h.alive, h.release = g.enter(t, holder, g.name)
		all = append(all, h)
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	stayHeld(t, all, 3*lease)
	for _, h := range all {
		err := h.release(t.Context())
		if h.name == "once" { // its result needs memory; the key is free
			require.ErrorIs(t, err, redlatch.ErrUnwritable)
			continue
		}
		require.NoError(t, err, h.name)
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for _, h := range all {
		require.NoError(t, h.wait(t.Context(), waiter, h.name), h.name)
	}
}

// F28
func TestRoundsGoOnInAFullRedis(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for kind, participantOf := range pairs {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			c, err := redlatch.New(server.Client(t))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			// placed waits until all of so many places are good for longer than some were, and returns until when they are.
			placed := func(set string, n int, before float64) (ends float64) {
				t.Helper()
				redistest.Eventually(t, 15*time.Second, "places are renewed", func() error {
					all := admin.ZRangeWithScores(t.Context(), "redlatch_"+kind+"_"+set+":{b}", 0, -1).Val()
					if len(all) != n || slices.ContainsFunc(all, func(z redis.Z) bool { return z.Score <= before }) {
						return fmt.Errorf("%v", all)
					}
					for _, place := range all {
						ends = max(ends, place.Score)
					}
					return nil
				})
				return ends
			}
			first, second := participantOf(c), participantOf(c)
			passed := make(chan error, 1)
			go func() { passed <- first.Enter(t.Context()) }()
			ends := placed("arrived", 1, 0)
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
			for range 2 {
				ends = placed("arrived", 1, ends)
			}
			require.NoError(t, second.Enter(t.Context()))
			require.NoError(t, <-passed)
			if kind == "double" {
				placed("inside", 2, placed("inside", 2, 0))
			}
			go func() { passed <- first.Leave(t.Context()) }()
			require.NoError(t, second.Leave(t.Context()))
			require.NoError(t, <-passed)

			ctx, giveUp := context.WithCancel(t.Context())
			go func() { passed <- first.Enter(ctx) }()
			placed("arrived", 1, 0)
			giveUp()
			require.ErrorIs(t, <-passed, context.Canceled)
			placed("arrived", 0, 0)
		})
	}
}

// newFillable returns a client of a server, and what has that refuse what needs memory, or end it.
func newFillable(t *testing.T, opts ...redlatch.Option) (c *redlatch.Client, fill func(full bool)) {
	t.Helper()
	server := redistest.Start(t)
	admin := server.Client(t)
	opts = append([]redlatch.Option{redlatch.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	c, err := redlatch.New(server.Client(t), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c, func(full bool) {
		assert.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(map[bool]int{true: 1}[full])).Err())
	}
}

// F25, F28
func TestLimiterCountsNothingInAFullRedis(t *testing.T) {
	t.Parallel()
	for kind, rate := range limitRates {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c, fill := newFillable(t)
			l := c.GetRateLimiter("api", rate(3, time.Hour))
			for key, n := range map[string]int{"exhausted": 3, "begun": 1} {
				res, err := l.Allow(t.Context(), key, n)
				require.NoError(t, err)
				require.True(t, res.Allowed)
			}
			fill(true)
			res, err := l.Allow(t.Context(), "exhausted", 1)
			require.NoError(t, err, "a no needs no memory")
			require.False(t, res.Allowed)
			for _, key := range []string{"new", "begun"} {
				for _, call := range []func() error{
					func() error { _, err := l.Allow(t.Context(), key, 1); return err },
					func() error { return l.Wait(t.Context(), key, 1) },
				} {
					err := call()
					require.ErrorIs(t, err, redlatch.ErrUnwritable)
					require.NotErrorIs(t, err, redlatch.ErrUnknown)
					require.NotErrorIs(t, err, rratelimiter.ErrExceeds)
				}
			}
			fill(false)
			for key, n := range map[string]int{"new": 3, "begun": 2} {
				res, err = l.Allow(t.Context(), key, n)
				require.NoError(t, err)
				assert.True(t, res.Allowed, "what was refused took nothing")
			}
		})
	}
}

// F25, F28
func TestIDsRiseAfterAFullRedis(t *testing.T) {
	t.Parallel()
	for form, of := range map[string]struct {
		first int // the ids of the first block
		opts  []rid.Option
	}{
		"plain": {10, []rid.Option{rid.WithBlock(10)}},
		"timed": {1, []rid.Option{rid.WithTimePrefix(32)}},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c, fill := newFillable(t)
			g := c.GetIDGenerator("order", of.opts...)
			last := int64(0)
			next := func() error {
				id, err := g.Next(t.Context())
				if err == nil {
					require.Greater(t, id, last)
					last = id
				}
				return err
			}
			require.NoError(t, next())
			fill(true)
			for range of.first - 1 {
				require.NoError(t, next(), "the block goes on")
			}
			for range 2 {
				err := next()
				require.ErrorIs(t, err, redlatch.ErrUnwritable)
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
			}
			fill(false)
			require.NoError(t, next())
		})
	}
}

// F28
func TestTopicsDeliverInAFullRedis(t *testing.T) {
	t.Parallel()
	c, fill := newFillable(t)
	topic := redlatch.GetTopic[string](c, "prices")
	before, err := topic.Subscribe(t.Context())
	require.NoError(t, err)
	fill(true)
	after, err := topic.Subscribe(t.Context())
	require.NoError(t, err)
	_, err = topic.Publish(t.Context(), "up")
	require.NoError(t, err)
	for _, sub := range []*rtopic.Subscription[string]{before, after} {
		for value, err := range sub.All() {
			require.NoError(t, err)
			require.Equal(t, "up", value)
			break
		}
		sub.Close()
	}
}

// F25, F28
func TestElectionsInAFullRedisAreHeldOrNot(t *testing.T) {
	t.Parallel()
	c, fill := newFillable(t)
	led, free := c.GetElection("led"), c.GetElection("free")
	l, err := led.Campaign(t.Context(), relection.WithValue("old"))
	require.NoError(t, err)
	fill(true)
	_, err = free.Campaign(t.Context())
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	require.NotErrorIs(t, err, redlatch.ErrUnknown)
	_, err = free.Leader(t.Context())
	require.ErrorIs(t, err, relection.ErrNoLeader)

	require.NoError(t, l.Proclaim(t.Context(), "new"), "a leader that Redis has goes on, as a hold does")
	leader, err := led.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "new", leader.Value)
	require.NoError(t, l.Resign(t.Context()))
	_, err = led.Leader(t.Context())
	require.ErrorIs(t, err, relection.ErrNoLeader)

	fill(false)
	for _, e := range []*relection.Election{led, free} {
		again, err := e.Campaign(t.Context())
		require.NoError(t, err)
		require.NoError(t, again.Resign(t.Context()))
	}
}

// F25, F28: while Redis is full ticks go on, once each, and jobs can be paused, resumed and removed.
func TestJobsGoOnInAFullRedis(t *testing.T) {
	t.Parallel()
	var c *redlatch.Client
	var fill func(bool)
	var once sync.Once
	c, fill = newFillable(t, redlatch.WithObserver(redlatch.Observer{
		ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
			if e.Name == "rscheduler.begin" { // the first tick was claimed
				once.Do(func() { fill(true) })
			}
			return ctx
		},
	}))
	s := c.GetScheduler("jobs")
	var mu sync.Mutex
	ran := map[time.Time]int{}
	manual := make(chan struct{}, 1)
	require.NoError(t, s.Register("job", rscheduler.Every(50*time.Millisecond), func(_ context.Context, run rscheduler.Run) error {
		if run.Manual {
			manual <- struct{}{}
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		ran[run.Scheduled]++
		return nil
	}, rscheduler.WithOverlap(rscheduler.Allow)))
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	redistest.Eventually(t, tickLimit, "ticks run", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(ran) < 20 {
			return fmt.Errorf("%d have run", len(ran))
		}
		return nil
	})
	require.NoError(t, s.Pause(t.Context(), "job", "why"))
	require.NoError(t, s.Resume(t.Context(), "job"))
	require.ErrorIs(t, s.Trigger(t.Context(), "job"), redlatch.ErrUnwritable)
	fill(false)
	require.NoError(t, s.Trigger(t.Context(), "job"))
	next(t, manual)
	fill(true)
	removed, err := s.Remove(t.Context(), "job")
	require.NoError(t, err)
	assert.True(t, removed)
	stop()
	require.NoError(t, <-stopped)
	assert.Empty(t, manual)
	for tick, times := range ran {
		assert.Equal(t, 1, times, tick)
	}
}

// dataWrites are a call that writes, of each kind of data: by a command, or by a script.
func dataWrites() map[string]func(ctx context.Context, c *redlatch.Client, name string) error {
	return map[string]func(ctx context.Context, c *redlatch.Client, name string) error{
		"bucket": func(ctx context.Context, c *redlatch.Client, name string) error {
			return rbucket.New[int](c, name).Set(ctx, 1)
		},
		"fenced bucket": func(ctx context.Context, c *redlatch.Client, name string) error {
			return rbucket.New[int](c, name).Set(ctx, 1, rbucket.WithFence(1))
		},
		"number": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := ratomic.NewInt64(c, name).Add(ctx, 1)
			return err
		},
		"fraction": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, _, err := ratomic.NewFloat64(c, name).AddWithin(ctx, 1, 0, 5)
			return err
		},
		"map": func(ctx context.Context, c *redlatch.Client, name string) error {
			return rmap.New[string, int](c, name).Set(ctx, "k", 1)
		},
		"near map": func(ctx context.Context, c *redlatch.Client, name string) error {
			return rmap.New[string, int](c, name, rmap.WithNear(10)).SetAll(ctx, map[string]int{"k": 1})
		},
		"set": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := rset.New[int](c, name).Add(ctx, 1)
			return err
		},
		"set that expires": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := rset.NewExpiring[int](c, name).Add(ctx, 1, time.Hour)
			return err
		},
		"sorted set": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := rsortedset.New[int](c, name).Add(ctx, 1, 1)
			return err
		},
		"cache": func(ctx context.Context, c *redlatch.Client, name string) error {
			return rcache.New[string, int](c, name, nil).Set(ctx, "k", 1)
		},
	}
}

// F25, F27, F28: a service that maps ErrUnavailable to 503 needs no case for a server that refuses writes.
func TestServerThatRefusesWritesIsUnwritable(t *testing.T) {
	t.Parallel()
	for refusal, setting := range map[string][]any{
		"OOM":        {"config", "set", "maxmemory", "1"},
		"READONLY":   {"replicaof", "127.0.0.1", "1"},
		"NOREPLICAS": {"config", "set", "min-replicas-to-write", "1"},
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
			c, err := redlatch.New(server.Client(t), quiet, redlatch.WithCallTimeout(time.Second), redlatch.WithWatchdogTimeout(time.Second))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			calls := oneCalls()
			delete(calls, "topic") // it writes nothing
			calls["queue"] = func(ctx context.Context, c *redlatch.Client, name string) error {
				_, err := redlatch.GetDelayedQueue[string](c, name).Offer(ctx, "v", 0)
				return err
			}
			maps.Copy(calls, dataWrites())
			require.NoError(t, c.GetSemaphore("semaphore").AddPermits(t.Context(), 1))
			require.NoError(t, c.GetPermitSemaphore("permit").SetPermits(t.Context(), 1))
			require.NoError(t, server.Client(t).Do(t.Context(), setting...).Err())
			var all sync.WaitGroup
			for kind, call := range calls {
				all.Go(func() {
					err := call(t.Context(), c, kind)
					assert.ErrorIs(t, err, redlatch.ErrUnwritable, kind)
					assert.ErrorIs(t, err, redlatch.ErrUnavailable, kind)
					assert.NotErrorIs(t, err, redlatch.ErrUnknown, kind)
					assert.True(t, redis.HasErrorPrefix(err, refusal), "%s: %v", kind, err)
					assert.NotContains(t, fmt.Sprint(err), "script", kind)
				})
			}
			all.Wait()
		})
	}
}
