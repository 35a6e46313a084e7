package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func restarted(t *testing.T) *topology {
	t.Helper()
	server := redistest.Start(t)
	return &topology{
		client:    func() redis.UniversalClient { return server.Client(t) },
		concerned: func(string) bool { return true },
		change: func() {
			server.Kill()
			server.Restart()
		},
		serves: func() {},
	}
}

// verifiedLease is the lease of what is verified. Its loss would be noticed by a renewal, about a third of it later, or at its end.
const verifiedLease = time.Minute

// takeVerified has a client hold one of each kind that has a lease, and handle a message. It returns why each of them has ended, by
// the name that nameOf gives it.
func takeVerified(t *testing.T, c *redlatch.Client, nameOf func(kind string) string) map[string]func() error {
	t.Helper()
	held := map[string]func() error{}
	for kind, take := range take(verifiedLease) {
		name := nameOf(kind)
		switch kind {
		case "message":
			var release func(context.Context) error
			held[name], release = enterQueue(t, c, name, verifiedLease)
			t.Cleanup(func() { _ = release(context.Background()) }) // what is lost cannot be released
			continue
		case "permit":
			require.NoError(t, c.GetPermitSemaphore(name).SetPermits(t.Context(), 1))
		}
		h, err := take(t.Context(), c, name)
		require.NoError(t, err, kind)
		held[name] = func() error { return ended(h.ctx) }
	}
	return held
}

// deleteKeys deletes all keys whose names have a part like this.
func deleteKeys(t *testing.T, rdb redis.UniversalClient, part string) {
	t.Helper()
	del := func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*"+part+"*").Result()
		for _, key := range keys {
			err = errors.Join(err, node.Del(ctx, key).Err())
		}
		return err
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachMaster(t.Context(), del))
		return
	}
	require.NoError(t, del(t.Context(), rdb.(*redis.Client)))
}

// F1, F9: after a failover or a restart everything that has a lease is verified at once, also what is not renewed until long after.
func TestHoldsAreVerifiedAfterAFailover(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	handsOver := failovers()[1]
	for _, tc := range []struct {
		failover
		watchdog time.Duration
		renewals int // before it; the server has answered what was asked beside the first one
	}{
		{failover{"a server has restarted", restarted}, 6 * time.Second, 2},
		{failover{"a server has restarted just after it was asked", restarted}, 2 * time.Second, 3}, // beside the first and the third
		{handsOver, 6 * time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := tc.start(t)
			renewed, failedOver, lost := make(chan int, 100), make(chan string, 10), make(chan string, 100)
			c, err := redlatch.New(p.client(), redlatch.WithWatchdogTimeout(tc.watchdog), redlatch.WithCloseGrace(0), redlatch.WithObserver(redlatch.Observer{
				FailedOver: func(node string) { failedOver <- node },
				HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) {
					if e.Err != nil {
						lost <- e.Name
					}
				},
				Renewed: func(renewals, _ int, _ error) { renewed <- renewals },
			}))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			named := func(use string) func(kind string) string {
				return func(kind string) string { return nameFor(use+kind, p.concerned) }
			}
			deleted, kept := takeVerified(t, c, named("deleted-")), takeVerified(t, c, named("kept-"))
			locktest.Acquire(t, t.Context(), c.GetLock(nameFor("renewed", p.concerned)))
			for range tc.renewals {
				next(t, renewed)
			}
			deleteKeys(t, p.client(), "deleted-")
			p.change()
			changed := time.Now()
			assert.Contains(t, next(t, failedOver), "127.0.0.1:")
			if tc.name != handsOver.name { // it has forgotten everything
				maps.Copy(deleted, kept)
			}
			redistest.Eventually(t, verifiedLease/6-time.Since(changed), "all losses are noticed", func() error {
				for name, alive := range deleted {
					if alive() == nil {
						return errors.New(name)
					}
				}
				return nil
			})
			t.Logf("%d losses were noticed %v after the change", len(deleted), time.Since(changed))
			for name, alive := range deleted {
				require.ErrorIs(t, alive(), rlock.ErrLost, name)
			}
			for range len(lost) {
				name := <-lost
				assert.True(t, tc.name != handsOver.name || strings.HasPrefix(name, "deleted-"), "%s is lost", name)
			}
			for name, alive := range kept {
				if tc.name == handsOver.name {
					assert.NoError(t, alive(), name)
				}
			}
			assert.Empty(t, failedOver, "it is told once")
			redistest.Eventually(t, 15*time.Second, "the client says when", func() error {
				r, err := c.Ask(t.Context(), c.ID())
				if err == nil && len(r.Failovers) == 1 && strings.HasPrefix(r.Failovers[0].Node, "127.0.0.1:") &&
					r.Failovers[0].At.Sub(changed).Abs() < verifiedLease/6 {
					return nil
				}
				return fmt.Errorf("%v, %w", r.Failovers, err)
			})
		})
	}
}

// F9, F20
func TestFailoversAreNotLookedForWithoutTheRight(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "unprivileged", "on", ">pass", "~*", "&*", "+@all", "-info").Err())
	opts := *server.Client(t).Options()
	opts.Username, opts.Password = "unprivileged", "pass"
	rdb := redis.NewClient(&opts)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	renewed := make(chan int, 100)
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(3*time.Second), redlatch.WithObserver(redlatch.Observer{
		Renewed: func(renewals, _ int, err error) { assert.NoError(t, err); renewed <- renewals },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	hold := locktest.Acquire(t, t.Context(), c.GetLock("n"))
	for range 4 {
		require.Equal(t, 1, next(t, renewed))
	}
	locktest.Unlock(t, hold)
	refused, err := admin.ACLLog(t.Context(), 10).Result()
	require.NoError(t, err)
	require.Len(t, refused, 1)
	assert.Equal(t, int64(2), refused[0].Count, "both parts of the answer are asked for once")
}
