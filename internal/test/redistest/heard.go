package redistest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// AwaitSubscribers waits until so many connections listen to a channel, sharded or not; on a cluster, to all nodes together.
func AwaitSubscribers(tb testing.TB, rdb redis.UniversalClient, channel string, n int) {
	tb.Helper()
	awaitSum(tb, rdb, fmt.Sprintf("%d subscribers of %s", n, channel), n, func(ctx context.Context, node *redis.Client) (int64, error) {
		heard, err := node.PubSubNumSub(ctx, channel).Result()
		sharded, _ := node.PubSubShardNumSub(ctx, channel).Result() // Redis 6.2 does not know it
		return heard[channel] + sharded[channel], err
	})
}

// AwaitChannels waits until somebody listens to so many channels of the library, sharded or not; on a cluster, on all nodes together.
func AwaitChannels(tb testing.TB, rdb redis.UniversalClient, n int) {
	tb.Helper()
	awaitSum(tb, rdb, fmt.Sprintf("%d channels", n), n, func(ctx context.Context, node *redis.Client) (int64, error) {
		plain, err := node.PubSubChannels(ctx, "red*").Result()
		sharded, _ := node.PubSubShardChannels(ctx, "red*").Result() // as above
		return int64(len(plain) + len(sharded)), err
	})
}

// awaitSum waits until what is counted on all nodes together is n at least. A message without a shard reaches replicas too: those who
// listened to a master before it became one still do.
func awaitSum(tb testing.TB, rdb redis.UniversalClient, what string, n int, count func(ctx context.Context, node *redis.Client) (int64, error)) {
	tb.Helper()
	Eventually(tb, readyLimit, what, func() error {
		var total atomic.Int64 // the nodes are asked at the same time
		add := func(ctx context.Context, node *redis.Client) error {
			here, err := count(ctx, node)
			total.Add(here)
			return err
		}
		var err error
		switch rdb := rdb.(type) {
		case *redis.ClusterClient:
			err = rdb.ForEachShard(tb.Context(), add)
		case *redis.Client:
			err = add(tb.Context(), rdb)
		}
		if err == nil && total.Load() < int64(n) {
			err = fmt.Errorf("there are %d", total.Load())
		}
		return err
	})
}
