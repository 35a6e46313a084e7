package inspect_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

func TestCrowdsAreCountedByObjectSinceTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open()
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		var set inspect.Gauges
		first, second := set.Watch(c), set.Watch(c)
		for _, name := range []string{"a", "b", "orders"} {
			hold, err := c.GetLock(name).Lock(t.Context())
			require.NoError(t, err)
			defer func() { assert.NoError(t, hold.Unlock(context.WithoutCancel(t.Context()))) }()
			time.Sleep(time.Minute)
		}
		names := func(name string) string {
			if name == "orders" {
				return name
			}
			return ""
		}
		second()
		holds, waits := set.Crowds(names)
		assert.Empty(t, waits)
		require.Len(t, holds, 2)
		assert.Equal(t, 2, holds[inspect.Object{Kind: "lock"}].Count)
		assert.InDelta(t, 180, holds[inspect.Object{Kind: "lock"}].Longest().Seconds(), 0.1)
		assert.InDelta(t, 60, holds[inspect.Object{Kind: "lock", Name: "orders"}].Longest().Seconds(), 0.1)
		first()
		holds, _ = set.Crowds(names)
		assert.Empty(t, holds)
	})
}

func TestClientThatIsWatchedTwiceIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open()
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		hold, err := c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, hold.Unlock(context.WithoutCancel(t.Context()))) }()
		var set inspect.Gauges
		defer set.Watch(c)()
		defer set.Watch(c)()
		holds, _ := set.Crowds(func(name string) string { return name })
		assert.Equal(t, 1, holds[inspect.Object{Kind: "lock", Name: "orders"}].Count)
	})
}

func TestQueueThatIsWatchedTwiceIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set inspect.Gauges
		failure := errors.New("down")
		for _, q := range []fixed{{"mail", rdelayedqueue.Stats{Ready: 2}, nil}, {"mail", rdelayedqueue.Stats{Ready: 2}, nil}, {"down", rdelayedqueue.Stats{}, failure}} {
			defer set.WatchQueue(q)()
		}
		asked := map[string]error{}
		began := time.Now()
		set.Queues(t.Context(), func(o inspect.Object, s rexecutor.Stats, err error) {
			assert.Equal(t, "queue", o.Kind)
			assert.NotContains(t, asked, o.Name)
			asked[o.Name] = err
			if err == nil {
				assert.Equal(t, 2, s.Ready)
			}
		})
		assert.Equal(t, map[string]error{"mail": nil, "down": failure}, asked)
		assert.Equal(t, time.Second, time.Since(began), "at the same time")
	})
}

// Queues of clients with different name prefixes, or of different servers, may have one name. A series that is one of them at each
// scrape, and another one at the next, goes up and down.
func TestOfQueuesOfOneNameTheFirstIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set inspect.Gauges
		stop := set.WatchQueue(fixed{"mail", rdelayedqueue.Stats{Ready: 2}, nil})
		defer set.WatchQueue(fixed{"mail", rdelayedqueue.Stats{Ready: 500}, nil})()
		ready := func() (n int) {
			set.Queues(t.Context(), func(_ inspect.Object, s rexecutor.Stats, _ error) { n += s.Ready })
			return n
		}
		for range 50 {
			assert.Equal(t, 2, ready())
		}
		stop()
		assert.Equal(t, 500, ready())
	})
}

// A queue and an executor of one name are two.
func TestExecutorIsWatchedWithItsTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open()
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		ex := rexecutor.New(c, "mail")
		require.NoError(t, rexecutor.NewTask[int, struct{}]("welcome").Send(t.Context(), ex, 1))
		var set inspect.Gauges
		defer set.WatchQueue(fixed{"mail", rdelayedqueue.Stats{Ready: 2}, nil})()
		stop := set.WatchExecutor(ex)
		found := map[inspect.Object]rexecutor.Stats{}
		look := func() {
			clear(found)
			set.Queues(t.Context(), func(o inspect.Object, s rexecutor.Stats, err error) {
				require.NoError(t, err)
				found[o] = s
			})
		}
		look()
		require.Len(t, found, 2)
		assert.Empty(t, found[inspect.Object{Kind: "queue", Name: "mail"}].Tasks)
		of := found[inspect.Object{Kind: "executor", Name: "mail"}]
		assert.Equal(t, 1, of.Ready)
		require.Len(t, of.Tasks, 1)
		assert.True(t, of.Tasks[0].Orphaned)
		stop()
		look()
		assert.Len(t, found, 1)
	})
}

// fixed is a queue that answers after a second.
type fixed struct {
	name  string
	stats rdelayedqueue.Stats
	err   error
}

func (f fixed) Name() string { return f.name }

func (f fixed) Stats(context.Context) (rdelayedqueue.Stats, error) {
	time.Sleep(time.Second)
	return f.stats, f.err
}

func TestCachesAreCountedWhileTheirClientIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, err := embedded.Open()
		require.NoError(t, err)
		defer func() { assert.NoError(t, server.Close()) }()
		users := rcache.New[string, string](server, "users", nil, rcache.WithNear(10))
		read := func(n int) {
			for range n {
				_, err := users.Get(t.Context(), "k")
				require.ErrorIs(t, err, rcache.ErrNotFound)
			}
		}
		all := func(string) string { return "" }
		read(1)
		var set inspect.Gauges
		assert.Empty(t, set.Caches(all))
		first, second := set.Watch(server), set.Watch(server)
		read(2)
		of := inspect.Object{Kind: "cache"}
		assert.EqualValues(t, 2, set.Caches(all)[of].Misses, "not what was before")
		first()
		first()
		read(3)
		assert.EqualValues(t, 5, set.Caches(all)[of].Misses)
		second()
		read(4)
		assert.EqualValues(t, 5, set.Caches(all)[of].Misses, "a counter does not go back")
		third := set.Watch(server)
		read(1)
		synctest.Wait() // the subscription of the near cache is there
		now := set.Caches(all)[of]
		assert.EqualValues(t, 6, now.Misses)
		assert.True(t, now.Near)
		assert.Zero(t, now.Lost)
		require.NoError(t, server.Close())
		assert.Zero(t, set.Caches(all)[of].Lost, "a closed client has no subscription, and needs none")
		third()
		assert.EqualValues(t, 6, set.Caches(all)[of].Misses)
	})
}
