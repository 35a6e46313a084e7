package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// crowded is a deployment whose servers have no connection left for others while it is full.
type crowded struct {
	connect func() redis.UniversalClient
	admins  []*redis.Client // of its servers
	lease   time.Duration
	unknown bool // it may be unknown whether a call was done for which there was no connection
}

// crowds are those, by their topology.
var crowds = map[string]func(t *testing.T) *crowded{
	"server": func(t *testing.T) *crowded {
		t.Helper()
		server := redistest.Start(t)
		return &crowded{connect: func() redis.UniversalClient { return server.Client(t) }, admins: []*redis.Client{server.Client(t)}}
	},
	"Sentinel": func(t *testing.T) *crowded {
		t.Helper()
		g := locktest.StartGroup(t)
		for _, node := range g.Sentinel.Nodes() { // it has no connection either
			require.NoError(t, node.Client(t).Do(t.Context(), "SENTINEL", "SET", "redlatch", "down-after-milliseconds", "600000").Err())
		}
		return &crowded{connect: func() redis.UniversalClient { return g.Sentinel.Client(t) }, admins: []*redis.Client{g.Master.Client(t)}}
	},
	"cluster": func(t *testing.T) *crowded {
		t.Helper()
		cluster := redistest.StartCluster(t, 3)
		c := &crowded{connect: func() redis.UniversalClient { return cluster.Client(t) }, unknown: true}
		for _, node := range cluster.Nodes() {
			c.admins = append(c.admins, node.Client(t))
		}
		return c
	},
}

// onEachCrowd runs a test for each topology.
func onEachCrowd(t *testing.T, lease time.Duration, test func(t *testing.T, c *crowded)) {
	t.Helper()
	for name, start := range crowds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.lease = lease
			test(t, c)
		})
	}
}

func (c *crowded) client(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	opts = append(opts, redlatch.WithWatchdogTimeout(c.lease), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	one, err := redlatch.New(c.connect(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, one.Close()) })
	return one
}

// fill has the servers refuse new connections, and ends all but the test's own.
func (c *crowded) fill(t *testing.T) {
	t.Helper()
	for _, admin := range c.admins {
		require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1").Err())
		for _, kind := range []string{"normal", "pubsub"} {
			require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err())
		}
	}
}

func (c *crowded) clear(t *testing.T) {
	t.Helper()
	for _, admin := range c.admins {
		require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1000").Err())
	}
}

// awaitRefused waits until the servers have refused some connections more.
func (c *crowded) awaitRefused(t *testing.T, n int) {
	t.Helper()
	refused := func() (all int) {
		for _, admin := range c.admins {
			info, err := admin.InfoMap(t.Context(), "stats").Result()
			require.NoError(t, err)
			var n int
			_, err = fmt.Sscan(info["Stats"]["rejected_connections"], &n)
			require.NoError(t, err)
			all += n
		}
		return all
	}
	before := refused()
	redistest.Eventually(t, c.lease, "connections are refused", func() error {
		if got := refused(); got < before+n {
			return fmt.Errorf("%d of %d", got-before, n)
		}
		return nil
	})
}

// attempts are calls that need one answer of Redis, on objects of their own.
func attempts(c *redlatch.Client) map[string]func(context.Context) error {
	all := map[string]func(context.Context) error{}
	for kind, call := range oneCalls() {
		all[kind] = func(ctx context.Context) error { return call(ctx, c, "new "+kind) }
	}
	maps.Copy(all, map[string]func(context.Context) error{
		"latch": func(ctx context.Context) error { return c.GetCountDownLatch("new latch").CountDown(ctx) },
		"queue": func(ctx context.Context) error {
			_, err := redlatch.GetDelayedQueue[string](c, "new queue").Offer(ctx, "work", 0)
			return err
		},
		"multi": func(ctx context.Context) error {
			_, err := c.GetMultiLock(c.GetLock("new multi"), c.GetFairLock("new multi 2")).TryLock(ctx)
			return err
		},
		"RedLock": func(ctx context.Context) error { _, err := red(c, "new red").TryLock(ctx); return err },
	})
	return all
}

// allUses returns how two clients use what nobody holds, and what looks at what all uses have got together. The server may give the
// tokens of the limiter back so many times.
func allUses(t *testing.T, one, two *redlatch.Client, refills int) (all []use, check func(twoMasters time.Duration)) {
	t.Helper()
	clients, nameOf := []*redlatch.Client{one, two}, func(kind string) string { return "used " + kind }
	all, check = sharedUses(t, clients, refills, nameOf)
	return append(all, barrierUses(clients, nameOf, func(string) {})...), check
}

// F25, F27, F28
func TestHoldsAndWaitsOutliveAServerThatHasNoConnectionLeft(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	onEachCrowd(t, 3*time.Second, func(t *testing.T, s *crowded) {
		holder, waiter, another := s.client(t), s.client(t), s.client(t, redlatch.WithCallTimeout(s.lease/8))
		all := enterAll(t, holder, waiter, guests(s.lease), func(g guest) string { return g.name })
		redistest.AwaitChannels(t, s.connect(), channels(all))
		uses, check := allUses(t, holder, waiter, 0)
		useEach(t, uses, 20)
		met := meetings(t, s.connect(), holder, waiter)
		require.NoError(t, another.GetCountDownLatch("old latch").CountDown(t.Context())) // it knows where to send

		s.fill(t)
		filled := time.Now()
		failed := make(chan error, len(attempts(another)))
		for kind, attempt := range attempts(another) {
			go func() { failed <- fmt.Errorf("%s: %w", kind, attempt(t.Context())) }()
		}
		for range cap(failed) {
			err := <-failed
			sending := errors.Is(err, script.ErrNoAnswer) // when the call timeout was over
			if errors.Is(err, redlatch.ErrUnknown) {
				assert.True(t, s.unknown || sending, "%v", err)
				continue
			}
			assert.ErrorIs(t, err, redlatch.ErrUnavailable)
		}
		stayHeld(t, all, time.Until(filled.Add(s.lease/3))) // each client has had to renew
		s.clear(t)
		stayHeld(t, all, time.Until(filled.Add(s.lease*5/4)))
		for _, h := range all {
			h.handOver(t)
		}
		for _, m := range met {
			m.end(t, false)
		}
		useEach(t, uses, 20)
		check(0)
	})
}

// F25, F28
func TestReleasesOnAServerThatHasNoConnectionLeftAreDoneOnceItHas(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	onEachCrowd(t, 3*time.Second, func(t *testing.T, s *crowded) {
		holder, waiter := s.client(t), s.client(t)
		all := enterAll(t, holder, waiter, guests(s.lease), func(g guest) string { return g.name })
		redistest.AwaitChannels(t, s.connect(), channels(all))
		met := meetings(t, s.connect(), holder, waiter)

		s.fill(t)
		released := make(chan error, len(all)+len(met))
		for _, m := range met {
			go func() { released <- errors.Join(m.second(t.Context()), <-m.first) }()
		}
		for _, h := range all {
			go func() {
				err := h.release(t.Context())
				for errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrUnknown) && t.Context().Err() == nil { // not done
					err = h.release(t.Context())
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", h.name, err)
				}
				released <- err
			}()
		}
		s.awaitRefused(t, 20)
		s.clear(t)
		for range cap(released) {
			assert.NoError(t, <-released)
		}
		for _, h := range all {
			h.gotten(t)
		}
	})
}

// F10, F28: renewals and releases need no more connections than one for calls, whatever else goes on, and one for subscriptions.
func TestOneConnectionServesHoldsAndManyWaits(t *testing.T) {
	redistest.Long(t)
	const lease, crowd = 3 * time.Second, 10
	for name, o := range map[string]redis.Options{
		"a pool of one":         {PoolSize: 1},
		"one active connection": {PoolSize: 1, MaxActiveConns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := func(lease time.Duration) *redlatch.Client {
				o.Addr = server.Addr()
				rdb := redis.NewClient(&o)
				c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0), redlatch.WithObserver(redlatch.Observer{
					Renewed: func(_, lost int, err error) {
						assert.NoError(t, err, "a renewal")
						assert.Zero(t, lost, "holds")
					},
				}))
				require.NoError(t, err)
				t.Cleanup(func() {
					assert.NoError(t, c.Close())
					assert.NoError(t, rdb.Close())
				})
				return c
			}
			holder, waiter := client(lease), client(failoverLease) // an attempt of a RedLock may take a tenth of the lease
			all := enterAll(t, holder, waiter, guests(lease), func(g guest) string { return g.name })
			others := make(chan error, crowd*len(all))
			for _, h := range all {
				for range crowd {
					go func() { others <- h.wait(t.Context(), waiter, h.name) }()
				}
			}
			redistest.AwaitChannels(t, server.Client(t), channels(all))
			uses, check := allUses(t, holder, waiter, 0)
			useEach(t, uses, 50)
			check(0)
			stayHeld(t, all, 2*lease)
			require.Empty(t, others, "two hold it")
			for range crowd { // each of those who wait takes one away
				_, err := redlatch.GetDelayedQueue[string](holder, "queue").Offer(t.Context(), "another", 0)
				require.NoError(t, err)
			}
			for _, h := range all {
				h.handOver(t)
			}
			for range cap(others) {
				require.NoError(t, <-others)
			}
		})
	}
}
