package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const slots = 16384

// Cluster is a Redis Cluster of masters, and of the replicas that [Cluster.AddReplica] gave them.
type Cluster struct {
	nodes    []*Server
	replicas []*Server
	moving   sync.Mutex // held while a node moves keys, since two that move some to each other would wait for each other, or takes a slot
}

// StartCluster starts a cluster of so many masters without replicas, three at least, and returns once every node knows
// all others and says that the cluster is up. Redis takes two seconds for that; [SharedCluster] spends them once.
func StartCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	Require(tb)
	if masters < 3 {
		tb.Fatalf("redistest: a cluster of %d masters; it takes 3", masters)
	}
	c := &Cluster{}
	for range masters {
		node := launchNode(tb, tb.TempDir())
		tb.Cleanup(node.end)
		c.nodes = append(c.nodes, node)
	}
	c.form(tb)
	return c
}

const nodeTimeout = 2000 // milliseconds

func launchNode(tb testing.TB, dir string) *Server {
	tb.Helper()
	return launch(tb, dir, "", func(port int) []string {
		return serverArgs(port, []string{
			"--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", fmt.Sprint(nodeTimeout),
		})
	})
}

// form spreads the slots over the nodes, introduces them to each other and waits until they agree.
func (c *Cluster) form(tb testing.TB) {
	tb.Helper()
	ctx := tb.Context()
	clients := make([]*redis.Client, len(c.nodes))
	for i, node := range c.nodes {
		clients[i] = redis.NewClient(node.options())
		defer closeClient(tb, clients[i])
	}
	for i, rdb := range clients {
		// Different epochs from the start spare the nodes a vote about them.
		err := rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()
		if err == nil {
			err = rdb.ClusterAddSlots(ctx, slotRange(slots*i/len(clients), slots*(i+1)/len(clients))...).Err()
		}
		for _, other := range c.nodes[:i] {
			if err == nil {
				err = rdb.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(other.port)).Err()
			}
		}
		if err != nil {
			tb.Fatalf("redistest: form cluster: %v", err)
		}
	}
	c.awaitAgreement(tb)
}

// slotRange returns the slots from one up to another. Redis 6.2 takes no ranges.
func slotRange(from, to int) []int {
	list := make([]int, 0, to-from)
	for slot := from; slot < to; slot++ {
		list = append(list, slot)
	}
	return list
}

func (c *Cluster) awaitAgreement(tb testing.TB) {
	tb.Helper()
	c.eachNode(tb, "cluster", func(rdb *redis.Client) error {
		return agrees(tb.Context(), rdb, len(c.nodes), len(c.all()))
	})
}

// eachNode waits until cond returns nil for every node, replicas included.
func (c *Cluster) eachNode(tb testing.TB, what string, cond func(*redis.Client) error) {
	tb.Helper()
	for _, node := range c.all() {
		rdb := redis.NewClient(node.options())
		Eventually(tb, readyLimit, what, func() error { return cond(rdb) })
		closeClient(tb, rdb)
	}
}

func (c *Cluster) all() []*Server { return slices.Concat(c.nodes, c.replicas) }

// agrees returns nil once this node sees so many masters that serve all slots, and so many nodes.
func agrees(ctx context.Context, rdb *redis.Client, masters, nodes int) error {
	info, err := rdb.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok",
		fmt.Sprintf("cluster_slots_ok:%d", slots),
		fmt.Sprintf("cluster_known_nodes:%d", nodes),
		fmt.Sprintf("cluster_size:%d", masters),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("no %q in:\n%s", want, info)
		}
	}
	return nil
}

// Nodes are the masters that the cluster began with, each serving an equal range of slots, in this order, but for those
// that [Cluster.Remove] took away, and then those that [Cluster.AddMaster] added.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs are the addresses of those masters.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// URL is for redlatch.Open; it names those masters.
func (c *Cluster) URL() string { return clientURL(c.Addrs()) }

func clientURL(addrs []string) string {
	return "redis://" + addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=")
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

// Client returns a client of the whole cluster that follows redirections. It is closed when the test ends.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:           c.Addrs(),
		MaxRetries:      -1,
		DialerRetries:   1,
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
	tb.Cleanup(func() { closeClient(tb, rdb) })
	return rdb
}
