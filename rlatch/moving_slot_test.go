package rlatch_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// F24
func TestCountsAreExactInASlotOnTheMove(t *testing.T) {
	const name = "slots"
	for what, moved := range map[string]func(keys []string) []string{
		"no key moved": func([]string) []string { return nil },
		"the count":    func([]string) []string { return []string{name} },
		"all keys":     func(keys []string) []string { return keys },
	} {
		t.Run(what, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 3)
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			c, err := redlatch.New(rdb)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			l := c.GetCountDownLatch(name)
			set(t, l, 3)
			once(t, l, "a", true)
			waiter := begin(t.Context(), l)
			redistest.AwaitSubscribers(t, rdb, "redisson_countdownlatch__channel__{"+name+"}", 1)

			from := cluster.Owner(t, name)
			to := cluster.Nodes()[0]
			if to == from {
				to = cluster.Nodes()[1]
			}
			m := cluster.Migrate(t, name, to)
			m.Move(t, moved(from.Client(t).Keys(t.Context(), "*"+name+"*").Val())...)
			counted := make(chan error, 2)
			go func() { counted <- l.CountDown(t.Context()) }()
			go func() {
				_, err := l.CountDownOnce(t.Context(), "a") // it has counted down
				counted <- err
			}()
			m.Finish(t)
			finished := time.Now()
			require.NoError(t, ended(t, counted))
			require.NoError(t, ended(t, counted))
			requireCount(t, l, 1)
			waits(t, waiter)
			down(t, l)
			require.NoError(t, ended(t, waiter))
			require.Less(t, time.Since(finished), 3*time.Second)
		})
	}
}
