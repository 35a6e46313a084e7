package rlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// busMessages returns how many messages of subscribers the nodes of a cluster have sent to one another.
func busMessages(t *testing.T, rdb *redis.ClusterClient) int64 {
	t.Helper()
	var sum atomic.Int64
	require.NoError(t, rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.ClusterInfo(ctx).Result()
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "cluster_stats_messages_publish_sent" || name == "cluster_stats_messages_publishshard_sent" {
				n, bad := strconv.ParseInt(value, 10, 64)
				assert.NoError(t, bad)
				sum.Add(n)
			}
		}
		return err
	}))
	return sum.Load()
}

// F21
func TestReleaseOnAClusterReachesOneNode(t *testing.T) {
	const sections = 50
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client(t)
	older := cluster.Nodes()[0].Major(t) < 7
	for mode, perRelease := range map[redlatch.ShardedWakeups]int64{
		redlatch.ShardedAuto: 0, redlatch.ShardedAlways: 0, redlatch.ShardedNever: 2, // to the two other nodes
	} {
		if older {
			perRelease = 2
		}
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			clients := [2]*redlatch.Client{}
			for i := range clients {
				c, err := redlatch.New(cluster.Client(t), redlatch.WithShardedWakeups(mode))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				clients[i] = c
			}
			name := fmt.Sprint("orders", mode)
			hold := locktest.Acquire(t, t.Context(), clients[0].GetLock(name))
			lag := faulttest.MeasureLag(t, cluster.Nodes()[0].Addr())
			before := busMessages(t, rdb)
			for i := range sections {
				next := clients[(i+1)%2].GetLock(name)
				waiting := locktest.Begin(func() (*rlock.Hold, error) { return next.Lock(t.Context()) })
				redistest.AwaitSubscribers(t, rdb, "redisson_lock__channel:{"+name+"}", min(i+1, 2))
				released := time.Now()
				locktest.Unlock(t, hold)
				hold = locktest.Next(t, waiting)
				assert.Less(t, time.Since(released), 500*time.Millisecond+lag.Late(), "woken, and not by a re-check")
			}
			assert.Equal(t, perRelease*sections, busMessages(t, rdb)-before)
			locktest.Unlock(t, hold)
		})
	}
}
