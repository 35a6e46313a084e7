package presence

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

// listeningLimit bounds the question who listens: one node that does not answer must not hold up what is known already.
const listeningLimit = time.Second

// Listening returns how many clients listen to a channel, on all nodes together; -1 if that is not known: the user may not ask, or a
// node does not answer within a second.
func Listening(ctx context.Context, c *core.Core, channel string) int {
	n, _ := listening(ctx, c, channel)
	return n
}

func listening(ctx context.Context, c *core.Core, channel string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, listeningLimit)
	defer cancel()
	n, err := core.Step(ctx, c, func(ctx context.Context) (int, error) {
		return total(ctx, c, func(ctx context.Context, node *redis.Client) (int64, error) { return heard(ctx, c, node, channel) })
	})
	if err != nil {
		return -1, err
	}
	return n, nil
}

// total returns the sum of what fn returns for each node.
func total(ctx context.Context, c *core.Core, fn func(ctx context.Context, node *redis.Client) (int64, error)) (int, error) {
	var total atomic.Int64
	err := c.Batch.EachNode(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := fn(ctx, node)
		total.Add(n)
		return err
	})
	return int(total.Load()), err
}

// ListeningTo is Listening for the channel of the object with a key, and costs less: a sharded channel is looked for on the node of its
// slot alone. It also returns whether the user may not ask.
func ListeningTo(ctx context.Context, c *core.Core, key, channel string) (n int, lacking bool) {
	node := c.Batch.Master(key)
	if !c.Batch.Sharded || node == nil {
		n, err := listening(ctx, c, channel)
		return n, script.Lacking(err)
	}
	ctx, cancel := context.WithTimeout(ctx, listeningLimit)
	defer cancel()
	answered := make(chan listeners, 1)
	if !c.Batch.Go(node, func(ctx context.Context, node *redis.Client) {
		n, err := heard(ctx, c, node, channel)
		answered <- listeners{n, err}
	}) {
		return -1, false
	}
	select {
	case a := <-answered:
		if a.err != nil {
			return -1, script.Lacking(a.err)
		}
		return int(a.n), false
	case <-ctx.Done():
		return -1, false
	}
}

// listeners are how many listen at a node.
type listeners struct {
	n   int64
	err error
}

// heard returns how many listen to a channel at a node.
func heard(ctx context.Context, c *core.Core, node *redis.Client, channel string) (int64, error) {
	ask := node.PubSubNumSub
	if c.Batch.Sharded {
		ask = node.PubSubShardNumSub
	}
	counts, err := ask(ctx, channel).Result()
	if c.Batch.Sharded && script.NoCommand(err) { // Redis 6.2 has no shards
		counts, err = node.PubSubNumSub(ctx, channel).Result()
	}
	return counts[channel], err
}

// Subscribers returns how many connections subscribe to a plain channel, at all nodes together.
func Subscribers(ctx context.Context, c *core.Core, channel string) (int, error) {
	return core.Step(ctx, c, func(ctx context.Context) (int, error) {
		return total(ctx, c, func(ctx context.Context, node *redis.Client) (int64, error) {
			heard, err := node.PubSubNumSub(ctx, channel).Result()
			return heard[channel], err
		})
	})
}

// Channels returns the channels that match a pattern and that a client of any node listens to.
func Channels(ctx context.Context, c *core.Core, pattern string) ([]string, error) {
	var mu sync.Mutex
	all := map[string]bool{}
	err := c.Batch.EachNode(ctx, func(ctx context.Context, node *redis.Client) error {
		ask := node.PubSubChannels
		if c.Batch.Sharded {
			ask = node.PubSubShardChannels
		}
		heard, err := ask(ctx, pattern).Result()
		if c.Batch.Sharded && script.NoCommand(err) { // as above
			heard, err = node.PubSubChannels(ctx, pattern).Result()
		}
		mu.Lock()
		for _, channel := range heard {
			all[channel] = true
		}
		mu.Unlock()
		return err
	})
	return slices.Sorted(maps.Keys(all)), err
}
