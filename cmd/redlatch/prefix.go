package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/presence"
)

// hintAtPrefix says so if clients listen, but none of the prefix that was given. Without the right to PUBSUB it says nothing.
func (a *app) hintAtPrefix(ctx context.Context, c *redlatch.Client) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if own, err := c.Clients(ctx); err != nil || len(own) > 0 {
		return
	}
	rdb, err := a.connect()
	if err != nil {
		return
	}
	defer func() { _ = rdb.Close() }() // nothing more is wanted of it
	if text := othersListen(ctx, rdb, a.prefix); text != "" {
		a.hint("%s", text)
	}
}

// othersListen names the prefixes of the clients that listen, where none of the given prefix does; "" if nobody listens.
func othersListen(ctx context.Context, rdb redis.UniversalClient, prefix string) string {
	found, err := listeners(ctx, rdb)
	if err != nil || len(found) == 0 {
		return ""
	}
	var others []string
	for _, one := range slices.Sorted(maps.Keys(found)) {
		clients := inspect.N(len(found[one]), "client", "clients")
		switch {
		case len(others) == mostPrefixes:
			clients = "others"
		case one == "":
			clients += " without"
		default:
			clients += " with --prefix " + quoted(one)
		}
		others = append(others, clients)
		if len(others) > mostPrefixes {
			break
		}
	}
	given := "without a name prefix"
	if prefix != "" {
		given = fmt.Sprintf("with the name prefix %q", prefix)
	}
	return fmt.Sprintf("no client %s can be asked, only %s", given, strings.Join(others, ", "))
}

// quoted is a text as a shell takes it for one word: anybody who may subscribe makes up prefixes.
func quoted(text string) string {
	if !strings.ContainsFunc(text, unsafe) && !strings.ContainsAny(text, "{=") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

const mostPrefixes = 5 // that are named

// listeners returns the ids of the clients that listen, by their name prefix.
func listeners(ctx context.Context, rdb redis.UniversalClient) (map[string]map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var mu sync.Mutex
	found := map[string]map[string]bool{}
	cluster, isCluster := rdb.(*redis.ClusterClient)
	look := func(ctx context.Context, node *redis.Client) error {
		channels, err := node.PubSubChannels(ctx, presence.ChannelPrefix+"*").Result()
		if isCluster {
			shards, _ := node.PubSubShardChannels(ctx, presence.ChannelPrefix+"*").Result() // Redis 6 has none
			channels = append(channels, shards...)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, channel := range channels {
			if prefix, id, ok := presence.SplitChannel(channel); ok {
				if found[prefix] == nil {
					found[prefix] = map[string]bool{}
				}
				found[prefix][id] = true
			}
		}
		return err
	}
	if isCluster {
		return found, cluster.ForEachShard(ctx, look)
	}
	single, ok := rdb.(*redis.Client)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return found, look(ctx, single)
}
