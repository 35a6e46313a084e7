package core

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/script"
)

// Free is what the scripts that look at a lock answer as the rest of the lease of one that nobody holds.
const Free = -2

// Left returns the rest of a lease that a script answered in ms, which is negative for a key without a TTL.
func Left(ms int64) time.Duration {
	if ms < 0 {
		return time.Duration(ms)
	}
	return time.Duration(ms) * time.Millisecond
}

// ClientOf returns the part of an owner id that says whose it is.
func ClientOf(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	return client
}

// listeningLimit bounds the question who listens: one node that does not answer must not hold up what is known already.
const listeningLimit = time.Second

// Listening returns how many clients listen to a channel, on all nodes together; -1 if that is not known: the user may not ask, or a
// node does not answer within a second.
func (c *Core) Listening(ctx context.Context, channel string) int {
	ctx, cancel := context.WithTimeout(ctx, listeningLimit)
	defer cancel()
	var total atomic.Int64
	answered := make(chan error, 1)
	go func() { // go-redis may look up a cluster's nodes for longer than ctx; its own timeouts end that
		answered <- c.Batch.EachNode(ctx, func(ctx context.Context, node *redis.Client) error {
			ask := node.PubSubNumSub
			if c.Batch.Sharded {
				ask = node.PubSubShardNumSub
			}
			heard, err := ask(ctx, channel).Result()
			if c.Batch.Sharded && script.NoCommand(err) { // Redis 6.2 has no shards
				heard, err = node.PubSubNumSub(ctx, channel).Result()
			}
			total.Add(heard[channel])
			return err
		})
	}()
	select {
	case err := <-answered:
		if err == nil {
			return int(total.Load())
		}
	case <-ctx.Done():
	}
	return -1
}

// Channels returns the channels that match a pattern and that a client of any node listens to.
func (c *Core) Channels(ctx context.Context, pattern string) ([]string, error) {
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

// Step runs a part of a call that only looks, and returns its error as the call's caller gets it.
func (c *Core) Step(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	return Conclude(ctx, script.NotDone, fn(ctx))
}
