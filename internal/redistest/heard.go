package redistest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// AwaitSubscribers waits until so many connections listen to a channel, sharded or not; on a cluster, to all masters together.
func AwaitSubscribers(tb testing.TB, rdb redis.UniversalClient, channel string, n int) {
	tb.Helper()
	Eventually(tb, readyLimit, fmt.Sprintf("%d subscribers of %s", n, channel), func() error {
		var total atomic.Int64 // the masters are asked at the same time
		count := func(ctx context.Context, node *redis.Client) error {
			heard, err := node.PubSubNumSub(ctx, channel).Result()
			total.Add(heard[channel])
			if sharded, err := node.PubSubShardNumSub(ctx, channel).Result(); err == nil { // Redis 6.2 does not know it
				total.Add(sharded[channel])
			}
			return err
		}
		var err error
		switch rdb := rdb.(type) {
		case *redis.ClusterClient:
			err = rdb.ForEachMaster(tb.Context(), count)
		case *redis.Client:
			err = count(tb.Context(), rdb)
		}
		if err == nil && total.Load() < int64(n) {
			err = fmt.Errorf("there are %d", total.Load())
		}
		return err
	})
}
