package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const slots = 16384

// Cluster is a Redis Cluster of masters.
type Cluster struct {
	nodes []*Server
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
		tb.Cleanup(node.Kill)
		c.nodes = append(c.nodes, node)
	}
	c.form(tb)
	return c
}

func launchNode(tb testing.TB, dir string) *Server {
	tb.Helper()
	return launch(tb, dir, "", func(port int) []string {
		return serverArgs(port, []string{
			"--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "2000",
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
			err = rdb.ClusterAddSlotsRange(ctx, slots*i/len(clients), slots*(i+1)/len(clients)-1).Err()
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
	for _, rdb := range clients {
		Eventually(tb, readyLimit, "cluster", func() error { return agrees(ctx, rdb, len(clients)) })
	}
}

// agrees returns nil once this node sees n masters that serve all slots.
func agrees(ctx context.Context, rdb *redis.Client, n int) error {
	info, err := rdb.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok",
		fmt.Sprintf("cluster_slots_ok:%d", slots),
		fmt.Sprintf("cluster_known_nodes:%d", n),
		fmt.Sprintf("cluster_size:%d", n),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("no %q in:\n%s", want, info)
		}
	}
	return nil
}

// Nodes are the servers of the cluster, each serving an equal range of slots, in this order.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

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
