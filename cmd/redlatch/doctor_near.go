package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

// near looks whether clients with near values hear of each other's changes.
func (d *doctor) near(ctx context.Context) {
	name := d.prefix + "redlatch_doctor"
	_, cluster := d.rdb.(*redis.ClusterClient)
	d.hears(ctx, "maps", core.Suffixed(name, "topic"), cluster)
	d.hears(ctx, "caches", core.Prefixed("redlatch_cache_channel", name), false)
	d.divided(ctx)
}

// hears sends a message as a change of near values does: of a map by a sharded channel of a cluster that has them.
func (d *doctor) hears(ctx context.Context, what, channel string, shards bool) {
	plain := func() error {
		return arrives(ctx, d.rdb.Subscribe(ctx, channel), func() error { return d.rdb.Publish(ctx, channel, "hello").Err() })
	}
	send := plain
	if shards {
		send = func() error {
			return arrives(ctx, d.rdb.SSubscribe(ctx, channel), func() error { return d.rdb.SPublish(ctx, channel, "hello").Err() })
		}
	}
	err := send()
	if shards && script.NoCommand(err) { // Redis 6 has no sharded channels
		err = plain()
	}
	f := finding{Level: good, Check: "near", Found: "changes of near " + what + " are heard of"}
	if err != nil {
		f.Level, f.Found = bad, "changes of near "+what+" are not heard of: "+err.Error()
		f.Means = "If the user may not publish, they fail; if not subscribe, nothing is near; if messages are lost, near values are old for up to WithMaxStale."
		f.Mend = "Allow the channel " + channel + " and its like; docs/operations.md has the list" + d.orPrefix() + passOn
	}
	d.find(f)
}

// divided looks for near maps whose clients listen to channels of both kinds: a change goes to one kind only.
func (d *doctor) divided(ctx context.Context) {
	cluster, ok := d.rdb.(*redis.ClusterClient)
	if !ok {
		return
	}
	plain, shards := map[string]bool{}, map[string]bool{}
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { // who may not ask was noted before
		some, _ := node.PubSubChannels(ctx, "*:topic").Result()
		others, _ := node.PubSubShardChannels(ctx, "*:topic").Result()
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, name := range some {
			plain[name] = true
		}
		for _, name := range others {
			shards[name] = true
		}
		return nil
	})
	for name := range plain {
		if shards[name] {
			d.find(finding{
				bad, "near", "", fmt.Sprintf("some clients listen to %s as a sharded channel, and some as a plain one", name),
				"Changes of one kind of client are not heard of by the other: its near values are old for up to WithMaxStale.",
				"Set the same WithShardedWakeups in all programs, in Java shardedSubscriptionMode.",
			})
		}
	}
}
