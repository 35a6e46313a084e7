// Topologies are the ways in which servers of Redis stand together, and fail over.

package scenario_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// failover is a topology, and a change of its master.
type failover struct {
	name  string
	start func(t *testing.T) *topology
}

// topology is a master with a replica.
type topology struct {
	url       string // for clients of the library: users have them from Open
	client    func() redis.UniversalClient
	concerned func(name string) bool // whether the object of a name is on the master that changes
	// change changes the master. The replica has whatever was acknowledged before the call.
	change func()
	// serves waits until the new master serves.
	serves func()
	// live says that the new master also has what was acknowledged during the change.
	live bool
	// frozen says that an old master does not answer meanwhile: nobody would know of a call to it whether it was made.
	frozen bool
	// silent says that it stays so: whoever waits for its answers goes on later, and subscriptions to it are found dead after silence.
	silent bool
	// retire makes an old master that still runs a replica, and ends its subscriptions, as Sentinel does some seconds later. nil if there
	// is none.
	retire func()
}

// connect returns a client of the master that lasts as long as the test.
func (p *topology) connect(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	c, err := redlatch.Open(t.Context(), p.url, append(opts, redlatch.WithCloseGrace(0))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func failovers() []failover {
	cluster := func(t *testing.T) (*topology, *redistest.Cluster, *redistest.Server, *redistest.Server) {
		t.Helper()
		c := redistest.StartCluster(t, 3)
		master := c.Nodes()[0]
		replica := c.AddReplica(t, master)
		return &topology{url: c.URL(), client: func() redis.UniversalClient { return c.Client(t) }, concerned: servedBy(t, c, master)}, c, master, replica
	}
	sentinel := func(t *testing.T) (*topology, *locktest.Group) {
		t.Helper()
		g := locktest.StartGroup(t)
		return &topology{url: g.Sentinel.URL(), client: func() redis.UniversalClient { return g.Sentinel.Client(t) }, concerned: func(string) bool { return true }}, g
	}
	return []failover{
		{"a master of a cluster is killed", func(t *testing.T) *topology {
			t.Helper()
			p, c, master, replica := cluster(t)
			for _, other := range c.Nodes()[1:] {
				c.AddReplica(t, other)
			}
			p.change = func() {
				redistest.AwaitSync(t, master, replica)
				master.Kill()
			}
			p.serves = func() { awaitPromotion(t, replica) }
			return p
		}},
		{"a master of a cluster hands over", func(t *testing.T) *topology {
			t.Helper()
			p, c, _, replica := cluster(t)
			p.change = func() { c.Failover(t, replica) }
			p.serves, p.live = func() {}, true
			return p
		}},
		{"a master of a cluster freezes", func(t *testing.T) *topology {
			t.Helper()
			p, c, master, replica := cluster(t)
			for _, other := range c.Nodes()[1:] {
				c.AddReplica(t, other)
			}
			p.url += "&read_timeout=1s" // go-redis waits for it when it asks the master for the layout
			p.frozen, p.silent = true, true
			p.change = func() {
				redistest.AwaitSync(t, master, replica)
				master.Pause()
			}
			p.serves = func() { awaitPromotion(t, replica) }
			return p
		}},
		{"a master behind Sentinel is killed", func(t *testing.T) *topology {
			t.Helper()
			p, g := sentinel(t)
			p.change = func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				g.Master.Kill()
			}
			p.serves = func() { g.Sentinel.AwaitMaster(g.Master.Addr()) }
			return p
		}},
		{"a master behind Sentinel freezes", func(t *testing.T) *topology {
			t.Helper()
			p, g := sentinel(t)
			p.frozen = true
			p.change = func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				g.Master.Pause()
			}
			p.serves = func() {
				g.Sentinel.AwaitMaster(g.Master.Addr())
				g.Master.Resume() // a subscription to one that stays silent is found dead after up to 20 s
				demote(t, g)
				awaitRole(t, g.Master, "slave")
			}
			return p
		}},
		{"a master behind Sentinel is replaced", func(t *testing.T) *topology {
			t.Helper()
			p, g := sentinel(t)
			p.change = func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				g.Sentinel.Failover()
			}
			p.serves = func() {}
			p.retire = func() { demote(t, g) }
			return p
		}},
	}
}

// servedBy returns whether the object of a name is on a master of a cluster.
func servedBy(t *testing.T, c *redistest.Cluster, master *redistest.Server) func(name string) bool {
	t.Helper()
	rdb := c.Client(t)
	return func(name string) bool {
		node, err := rdb.MasterForKey(t.Context(), name)
		require.NoError(t, err)
		return node.Options().Addr == master.Addr()
	}
}

// demote has the old master do what Sentinel has it do some seconds later.
func demote(t *testing.T, g *locktest.Group) {
	t.Helper()
	host, port, err := net.SplitHostPort(g.Replica.Addr())
	require.NoError(t, err)
	old := g.Master.Client(t)
	require.NoError(t, old.ReplicaOf(t.Context(), host, port).Err())
	require.NoError(t, old.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
}

// awaitPromotion waits until the replica of a master that was killed, or is frozen, takes its place.
func awaitPromotion(t *testing.T, replica *redistest.Server) {
	t.Helper()
	awaitRole(t, replica, "master")
}

func awaitRole(t *testing.T, server *redistest.Server, want string) {
	t.Helper()
	rdb := server.Client(t)
	redistest.Eventually(t, redistest.ElectionLimit, "the "+want, func() error {
		role, err := rdb.Do(t.Context(), "role").Slice()
		if err == nil && role[0] != want {
			err = fmt.Errorf("it is a %v", role[0])
		}
		return err
	})
}

// watched is a place where one client holds, another one waits, and a third one looks.
type watched struct {
	holder, waiter, viewer *redlatch.Client
	rdb                    redis.UniversalClient
	client                 func(opts ...redlatch.Option) *redlatch.Client // returns another one
}

// onEachTopology runs the test on a server and on a cluster, with sharded and with plain channels.
func onEachTopology(t *testing.T, test func(t *testing.T, w *watched)) {
	t.Helper()
	run := func(name string, connect func(t *testing.T) redis.UniversalClient, opts ...redlatch.Option) {
		t.Run(name, func(t *testing.T) {
			w := &watched{rdb: connect(t)}
			w.client = func(more ...redlatch.Option) *redlatch.Client {
				c, err := redlatch.New(connect(t), slices.Concat(opts, more, []redlatch.Option{redlatch.WithCloseGrace(0)})...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close()) })
				return c
			}
			for role, c := range map[string]**redlatch.Client{"holder": &w.holder, "waiter": &w.waiter, "viewer": &w.viewer} {
				*c = w.client(redlatch.WithClientName(role))
			}
			test(t, w)
		})
	}
	single := func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.Shared(t).Client(t) }
	cluster := func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.SharedCluster(t).Client(t) }
	run("server", single)
	run("sharded channels on a server", single, redlatch.WithShardedWakeups(redlatch.ShardedAlways))
	run("cluster", cluster)
	run("plain channels on a cluster", cluster, redlatch.WithShardedWakeups(redlatch.ShardedNever))
}

// fresh returns a name that no earlier run of the test has used on a server that tests share.
func fresh(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano())
}

// await asks until so many are seen to wait.
func await(t *testing.T, n int, waiting func() (int, error)) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, "those who wait are seen", func() error {
		got, err := waiting()
		if err == nil && got != n {
			err = fmt.Errorf("%d wait, not %d", got, n)
		}
		return err
	})
}

// elsewhere returns a name without the tag that keeps others in their slot.
func elsewhere(name string) string { return strings.Trim(strings.ReplaceAll(name, "}", ""), "{") }

// inSlotOf returns names in the slot of a key that have no tag.
func inSlotOf(t *testing.T, rdb redis.Cmdable, key string, n int) (names []string) {
	t.Helper()
	slot, err := rdb.ClusterKeySlot(t.Context(), key).Result()
	require.NoError(t, err)
	for i := 0; len(names) < n; i += 5000 {
		var slots []*redis.IntCmd
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for j := range 5000 {
				slots = append(slots, p.ClusterKeySlot(t.Context(), fmt.Sprint("latch", i+j)))
			}
			return nil
		})
		require.NoError(t, err)
		for j, cmd := range slots {
			if cmd.Val() == slot {
				names = append(names, fmt.Sprint("latch", i+j))
			}
		}
	}
	return names
}

// clusterClient returns a client that does not wait for its holds when it closes, at the end of the test.
func clusterClient(t *testing.T, cluster *redistest.Cluster) *redlatch.Client {
	t.Helper()
	c, err := redlatch.New(cluster.Client(t), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// subscribed returns what a server says of the subscriptions that it was asked for, refused ones included.
func subscribed(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	info, err := s.Client(t).Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	return slices.DeleteFunc(strings.Fields(info), func(line string) bool { return !strings.Contains(line, "subscribe:") })
}
