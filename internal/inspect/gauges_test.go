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
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
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
		assert.Equal(t, 2, holds[inspect.Object{Kind: "rlock"}].Count)
		assert.InDelta(t, 180, holds[inspect.Object{Kind: "rlock"}].Longest().Seconds(), 0.1)
		assert.InDelta(t, 60, holds[inspect.Object{Kind: "rlock", Name: "orders"}].Longest().Seconds(), 0.1)
		first()
		holds, _ = set.Crowds(names)
		assert.Empty(t, holds)
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
		set.Queues(t.Context(), func(name string, s rdelayedqueue.Stats, err error) {
			assert.NotContains(t, asked, name)
			asked[name] = err
			if err == nil {
				assert.Equal(t, map[string]int{"delayed": 0, "ready": 2, "in flight": 0, "dead": 0}, inspect.StateCounts(s))
			}
		})
		assert.Equal(t, map[string]error{"mail": nil, "down": failure}, asked)
		assert.Equal(t, time.Second, time.Since(began), "at the same time")
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
