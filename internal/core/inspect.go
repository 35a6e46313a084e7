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

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Free is what the scripts that look at a lock answer as the rest of the lease of one that nobody holds.
const Free = -2

// MostListed is how many waiters or holders an Info lists, so that no call of a script takes long. Docs name the number.
const MostListed = 100

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
	n, _ := c.listening(ctx, channel)
	return n
}

func (c *Core) listening(ctx context.Context, channel string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, listeningLimit)
	defer cancel()
	n, err := heed(ctx, c, func() (int, error) {
		return c.total(ctx, func(ctx context.Context, node *redis.Client) (int64, error) { return c.heard(ctx, node, channel) })
	})
	if err != nil {
		return -1, err
	}
	return n, nil
}

// total returns the sum of what fn returns for each node.
func (c *Core) total(ctx context.Context, fn func(ctx context.Context, node *redis.Client) (int64, error)) (int, error) {
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
func (c *Core) ListeningTo(ctx context.Context, key, channel string) (n int, lacking bool) {
	node := c.Batch.Master(key)
	if !c.Batch.Sharded || node == nil {
		n, err := c.listening(ctx, channel)
		return n, script.Lacking(err)
	}
	ctx, cancel := context.WithTimeout(ctx, listeningLimit)
	defer cancel()
	answered := make(chan listeners, 1)
	if !c.Batch.Go(node, func(ctx context.Context, node *redis.Client) {
		heard, err := c.heard(ctx, node, channel)
		answered <- listeners{heard, err}
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
func (c *Core) heard(ctx context.Context, node *redis.Client, channel string) (int64, error) {
	ask := node.PubSubNumSub
	if c.Batch.Sharded {
		ask = node.PubSubShardNumSub
	}
	heard, err := ask(ctx, channel).Result()
	if c.Batch.Sharded && script.NoCommand(err) { // Redis 6.2 has no shards
		heard, err = node.PubSubNumSub(ctx, channel).Result()
	}
	return heard[channel], err
}

// Subscribers returns how many connections subscribe to a plain channel, at all nodes together.
func (c *Core) Subscribers(ctx context.Context, channel string) (int, error) {
	return Step(ctx, c, func(ctx context.Context) (int, error) {
		return c.total(ctx, func(ctx context.Context, node *redis.Client) (int64, error) {
			heard, err := node.PubSubNumSub(ctx, channel).Result()
			return heard[channel], err
		})
	})
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

// Step runs a part of a call that only looks, and returns its error as the call's caller gets it. It ends with ctx and with the client;
// what fn does then nobody but Close waits for.
func Step[T any](ctx context.Context, c *Core, fn func(ctx context.Context) (T, error)) (T, error) {
	if err := c.ready(ctx); err != nil {
		var none T
		return none, err
	}
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	value, err := heed(ctx, c, func() (T, error) { return fn(ctx) })
	return value, Conclude(ctx, script.NotDone, err)
}

// heed returns what fn does, [script.ErrNoAnswer] if ctx ends first, and [errs.ErrClosed] if the client does. go-redis heeds no cancellation
// while it waits for a reply, and may look up a cluster's nodes for longer than ctx; its own timeouts end that.
func heed[T any](ctx context.Context, c *Core, fn func() (T, error)) (value T, err error) {
	if !c.Admit() {
		return value, errs.ErrClosed
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() { // Close waits for it, for a while
		defer c.End()
		value, err := fn()
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		if a.err != nil && c.Closed() {
			return value, errs.ErrClosed
		}
		return a.value, a.err
	case <-ctx.Done():
		return value, script.ErrNoAnswer
	case <-c.closing:
		return value, errs.ErrClosed
	}
}
