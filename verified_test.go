package redlatch_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func restarted(t *testing.T) (func() redis.UniversalClient, func(string) bool, func()) {
	t.Helper()
	server := redistest.Start(t)
	return func() redis.UniversalClient { return server.Client(t) }, func(string) bool { return true }, func() {
		server.Kill()
		server.Restart()
	}
}

// next returns what a hook was told next.
func next[T any](t *testing.T, told <-chan T) T {
	t.Helper()
	select {
	case one := <-told:
		return one
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing was told")
		panic("not reached")
	}
}

// Of a lock that is not renewed the loss would be noticed at the end of its lease, a minute later.
//
// F1, F9
func TestHoldsAreVerifiedAfterAFailover(t *testing.T) {
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
			f := tc.failover
			t.Parallel()
			rdb, concerned, change := f.start(t)
			renewed, failedOver, lost := make(chan int, 100), make(chan string, 10), make(chan string, 10)
			c, err := redlatch.New(rdb(), redlatch.WithWatchdogTimeout(tc.watchdog), redlatch.WithObserver(redlatch.Observer{
				Renewed:    func(renewals, _ int, _ error) { renewed <- renewals },
				FailedOver: func(node string) { failedOver <- node },
				Lost:       func(_, name string, _ error) { lost <- name },
			}))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			kept := locktest.Acquire(t, t.Context(), c.GetLock(nameFor("kept", concerned)))
			deleted := nameFor("deleted", concerned)
			locktest.Acquire(t, t.Context(), c.GetLock(deleted), rlock.WithLease(time.Minute))
			for range tc.renewals {
				next(t, renewed)
			}
			require.NoError(t, rdb().Del(t.Context(), deleted).Err())
			change()
			assert.Contains(t, next(t, failedOver), "127.0.0.1:")
			for name := next(t, lost); name != deleted; name = next(t, lost) {
				require.NotEqual(t, handsOver.name, f.name, "%s is lost", name)
			}
			if f.name == handsOver.name {
				locktest.Unlock(t, kept)
			}
			assert.Empty(t, failedOver, "it is told once")
		})
	}
}

// F9, F20
func TestFailoversAreNotLookedForWithoutTheRight(t *testing.T) {
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
