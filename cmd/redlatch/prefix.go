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
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/inspect"
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
	heads, err := listeners(ctx, rdb)
	if err != nil || len(heads) == 0 {
		return ""
	}
	var others []string
	for _, head := range slices.Sorted(maps.Keys(heads)) {
		clients := inspect.N(len(heads[head]), "client", "clients")
		switch {
		case len(others) == mostPrefixes:
			clients = "others"
		case head == "":
			clients += " without"
		default:
			clients += " with --prefix " + prefixOf(head)
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

const (
	clientChannel = "redlatch_client:" // then the head, and the id
	mostPrefixes  = 5                  // that are named
)

// prefixOf returns the prefix of which a client makes a head: it puts one without braces into braces.
func prefixOf(head string) string {
	if inner := strings.TrimSuffix(strings.TrimPrefix(head, "{"), "}"); "{"+inner+"}" == head {
		return inner
	}
	return head
}

// listeners returns the ids of the clients that listen, by what stands before them in their channels.
func listeners(ctx context.Context, rdb redis.UniversalClient) (map[string]map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var mu sync.Mutex
	heads := map[string]map[string]bool{}
	cluster, isCluster := rdb.(*redis.ClusterClient)
	look := func(ctx context.Context, node *redis.Client) error {
		channels, err := node.PubSubChannels(ctx, clientChannel+"*").Result()
		if isCluster {
			shards, _ := node.PubSubShardChannels(ctx, clientChannel+"*").Result() // Redis 6 has none
			channels = append(channels, shards...)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, channel := range channels {
			rest := strings.TrimPrefix(channel, clientChannel)
			from := 1 + strings.LastIndexAny(rest, "{}:/") // none of them is in an id
			if id := rest[from:]; core.IsClientID(id) {
				if heads[rest[:from]] == nil {
					heads[rest[:from]] = map[string]bool{}
				}
				heads[rest[:from]][id] = true
			}
		}
		return err
	}
	if isCluster {
		return heads, cluster.ForEachShard(ctx, look)
	}
	single, ok := rdb.(*redis.Client)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return heads, look(ctx, single)
}
