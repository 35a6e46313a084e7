package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// AddReplica starts a replica of one of the cluster's masters, and returns once it has all that the master has and every
// node knows it. It is no cluster of [SharedCluster] that it may be added to.
func (c *Cluster) AddReplica(tb testing.TB, master *Server) *Server {
	tb.Helper()
	ctx := tb.Context()
	replica := launchNode(tb, tb.TempDir())
	tb.Cleanup(replica.end)
	from, to := redis.NewClient(master.options()), redis.NewClient(replica.options())
	defer closeClient(tb, from)
	defer closeClient(tb, to)
	id, err := from.ClusterMyID(ctx).Result()
	if err == nil {
		err = to.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(master.port)).Err()
	}
	if err != nil {
		tb.Fatalf("redistest: add replica: %v", err)
	}
	c.replicas = append(c.replicas, replica)
	// Until it has heard of the master it refuses.
	Eventually(tb, readyLimit, "replicate", func() error { return to.ClusterReplicate(ctx, id).Err() })
	awaitSync(tb, from, to)
	c.awaitAgreement(tb)
	return replica
}

// AddMaster starts a master, which joins the cluster and gets the slots of keys with all that is in them, and returns
// once every node says so. The cluster must not be that of [SharedCluster].
func (c *Cluster) AddMaster(tb testing.TB, keys ...string) *Server {
	tb.Helper()
	ctx := tb.Context()
	master := launchNode(tb, tb.TempDir())
	tb.Cleanup(master.end)
	rdb := redis.NewClient(master.options())
	defer closeClient(tb, rdb)
	if err := rdb.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(c.nodes[0].port)).Err(); err != nil {
		tb.Fatalf("redistest: add master: %v", err)
	}
	serving := len(c.nodes)
	c.nodes = append(slices.Clone(c.nodes), master)
	c.eachNode(tb, "join", func(rdb *redis.Client) error { return agrees(ctx, rdb, serving, len(c.all())) })
	Injected("master added")
	for _, key := range keys {
		if c.Owner(tb, key) != master { // two keys may be of one slot
			c.Migrate(tb, key, master).Finish(tb)
		}
	}
	return master
}

// Remove has a master without replicas give its slots with all that is in them to another one. All nodes forget it; it runs
// on, and tells clients where the slots are. It takes long for a master with many slots. The cluster must not be that of
// [SharedCluster].
func (c *Cluster) Remove(tb testing.TB, master, heir *Server) {
	tb.Helper()
	ctx := tb.Context()
	rdb := redis.NewClient(master.options())
	defer closeClient(tb, rdb)
	id, err := rdb.ClusterMyID(ctx).Result()
	if err != nil {
		tb.Fatalf("redistest: id of %s: %v", master.Addr(), err)
	}
	//lint:ignore SA1019 Redis 6.2 does not know CLUSTER SHARDS.
	ranges, err := rdb.ClusterSlots(ctx).Result() //nolint:staticcheck // as above
	if err != nil {
		tb.Fatalf("redistest: slots of %s: %v", master.Addr(), err)
	}
	for _, r := range ranges {
		if r.Nodes[0].Addr != master.Addr() { // the master comes first
			continue
		}
		for slot := r.Start; slot <= r.End; slot++ {
			c.migrate(tb, int64(slot), master, heir).Finish(tb)
		}
	}
	c.nodes = slices.DeleteFunc(slices.Clone(c.nodes), func(s *Server) bool { return s == master })
	c.eachNode(tb, "forget", func(rdb *redis.Client) error { return rdb.ClusterForget(ctx, id).Err() })
	c.awaitAgreement(tb)
	Injected("master removed")
}

const (
	failoverLimit = time.Minute
	votesLast     = 4 * nodeTimeout * time.Millisecond // that a replica got
)

// Failover has a replica take its master's place, in order: the master stops, the replica catches up, and the other
// masters vote. It returns once every node says so, and how long that took from the request on. The master is a replica
// of the new one afterwards.
func (c *Cluster) Failover(tb testing.TB, replica *Server) (outage time.Duration) {
	tb.Helper()
	ctx := tb.Context()
	rdb := redis.NewClient(replica.options())
	defer closeClient(tb, rdb)
	fields, err := replication(ctx, rdb)
	if err != nil {
		tb.Fatalf("redistest: failover: %v", err)
	}
	master := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(fields["master_host"], fields["master_port"])})
	defer closeClient(tb, master)
	id, err := rdb.ClusterMyID(ctx).Result()
	if err != nil {
		tb.Fatalf("redistest: failover: %v", err)
	}
	// A replica that is not in sync, or behind in its epoch, or that a master does not know as one, takes the command and
	// lets it come to nothing.
	awaitSync(tb, master, rdb)
	c.eachNode(tb, "epoch", func(node *redis.Client) error { return sameEpoch(ctx, node, rdb) })
	c.eachNode(tb, "replica known", func(node *redis.Client) error { return hasRole(ctx, node, id, "slave") })
	// One that was elected lately takes those votes for new ones: then nobody follows it, and for seconds nobody is the master.
	time.Sleep(time.Until(replica.elected.Add(votesLast)))
	began := time.Now()
	Injected("failover ordered")
	// The request to the master is sent once, and may be lost while the nodes still connect to each other. On a busy machine a vote
	// takes long, and a new request would begin it again; masters that have voted lately refuse for some seconds.
	pause := time.Second
	Eventually(tb, failoverLimit, "failover", func() error {
		if hasRole(ctx, rdb, id, "master") == nil {
			return nil // by an earlier request, which took its time
		}
		if err := rdb.ClusterFailover(ctx).Err(); err != nil {
			return err
		}
		pause *= 2
		return retry(pause/2, func() error { return hasRole(ctx, rdb, id, "master") })
	})
	c.eachNode(tb, "failover", func(node *redis.Client) error { return hasRole(ctx, node, id, "master") })
	replica.elected = time.Now()
	return time.Since(began)
}

func sameEpoch(ctx context.Context, a, b *redis.Client) error {
	var epochs [2]string
	for i, node := range []*redis.Client{a, b} {
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		_, epochs[i], _ = strings.Cut(info, "cluster_current_epoch:")
		epochs[i], _, _ = strings.Cut(epochs[i], "\r\n")
	}
	if epochs[0] != epochs[1] {
		return fmt.Errorf("epoch %s, not %s", epochs[1], epochs[0])
	}
	return nil
}

// hasRole returns nil if a node knows the one with the given id as "master", which serves slots, or "slave".
func hasRole(ctx context.Context, node *redis.Client, id, role string) error {
	list, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if fields[0] == id && strings.Contains(fields[2], role) && (role == "slave" || len(fields) > 8) {
			return nil
		}
	}
	return fmt.Errorf("%s is no %s in:\n%s", id, role, list)
}

// Owner returns the master that serves the slot of a key now.
func (c *Cluster) Owner(tb testing.TB, key string) *Server {
	tb.Helper()
	rdb := c.Client(tb)
	node, err := rdb.MasterForKey(tb.Context(), key)
	if err != nil {
		tb.Fatalf("redistest: owner of %q: %v", key, err)
	}
	for _, s := range c.all() {
		if s.Addr() == node.Options().Addr {
			return s
		}
	}
	tb.Fatalf("redistest: %q is served by a stranger", key)
	return nil
}

// Migration is a slot on its way from one master to another.
type Migration struct {
	cluster  *Cluster
	slot     int64
	from, to *Server
}

// Other returns a master that does not serve the slot of a key.
func (c *Cluster) Other(tb testing.TB, key string) *Server {
	tb.Helper()
	owner := c.Owner(tb, key)
	return c.nodes[slices.IndexFunc(c.nodes, func(s *Server) bool { return s != owner })]
}

// Migrate begins to move the slot of a key to another master, as an operator would: what is no longer in the old place
// is asked for in the new one. No key moves by itself.
func (c *Cluster) Migrate(tb testing.TB, key string, to *Server) *Migration {
	tb.Helper()
	rdb := redis.NewClient(to.options())
	defer closeClient(tb, rdb)
	slot, err := rdb.ClusterKeySlot(tb.Context(), key).Result()
	if err != nil {
		tb.Fatalf("redistest: slot of %q: %v", key, err)
	}
	return c.migrate(tb, slot, c.Owner(tb, key), to)
}

func (c *Cluster) migrate(tb testing.TB, slot int64, owner, to *Server) *Migration {
	tb.Helper()
	ctx := tb.Context()
	m := &Migration{cluster: c, slot: slot, from: owner, to: to}
	from, target := redis.NewClient(owner.options()), redis.NewClient(to.options())
	defer closeClient(tb, from)
	defer closeClient(tb, target)
	source, err1 := from.ClusterMyID(ctx).Result()
	goal, err2 := target.ClusterMyID(ctx).Result()
	err := errors.Join(err1, err2)
	if err == nil {
		err = target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", source).Err()
	}
	if err == nil {
		err = from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", goal).Err()
	}
	if err != nil {
		tb.Fatalf("redistest: migrate slot %d: %v", slot, err)
	}
	return m
}

// Move moves keys of the slot. Keys that do not exist are passed over.
func (m *Migration) Move(tb testing.TB, keys ...string) {
	tb.Helper()
	if len(keys) == 0 {
		return
	}
	m.cluster.moving.Lock()
	defer m.cluster.moving.Unlock()
	rdb := redis.NewClient(m.from.options())
	defer closeClient(tb, rdb)
	args := []any{"MIGRATE", "127.0.0.1", m.to.port, "", 0, readyLimit.Milliseconds(), "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	if err := rdb.Do(tb.Context(), args...).Err(); err != nil {
		tb.Fatalf("redistest: migrate %q: %v", keys, err)
	}
}

// Finish moves what is left of the slot and gives it to the new master.
func (m *Migration) Finish(tb testing.TB) {
	tb.Helper()
	ctx := tb.Context()
	from, to := redis.NewClient(m.from.options()), redis.NewClient(m.to.options())
	defer closeClient(tb, from)
	defer closeClient(tb, to)
	for keys := m.Left(tb); len(keys) > 0; keys = m.Left(tb) {
		m.Move(tb, keys...)
	}
	// Two nodes that take slots at once may take the same epoch. A third one that has seen a higher one of the old master then believes
	// for good that the slot is still there.
	m.cluster.moving.Lock()
	defer m.cluster.moving.Unlock()
	Injected("slot moved")
	goal, err := to.ClusterMyID(ctx).Result()
	for _, node := range []*redis.Client{to, from} { // the new master first: there must always be one
		if err == nil {
			err = node.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", goal).Err()
		}
	}
	// A master that hears that its last slot has gone becomes a replica.
	if err != nil && !redis.HasErrorPrefix(err, "Please use SETSLOT only with masters") {
		tb.Fatalf("redistest: give slot %d away: %v", m.slot, err)
	}
	m.cluster.eachNode(tb, "slot", func(rdb *redis.Client) error { return m.served(ctx, rdb) })
}

// Left returns the keys of the slot that the old master still has. After Finish there must be none.
func (m *Migration) Left(tb testing.TB) []string {
	tb.Helper()
	from := redis.NewClient(m.from.options())
	defer closeClient(tb, from)
	keys, err := from.ClusterGetKeysInSlot(tb.Context(), int(m.slot), 100).Result()
	if err != nil {
		tb.Fatalf("redistest: keys of slot %d: %v", m.slot, err)
	}
	return keys
}

// served returns nil once this node says that the new master serves the slot.
func (m *Migration) served(ctx context.Context, rdb *redis.Client) error {
	//lint:ignore SA1019 Redis 6.2 does not know CLUSTER SHARDS.
	ranges, err := rdb.ClusterSlots(ctx).Result() //nolint:staticcheck // as above
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if int64(r.Start) <= m.slot && m.slot <= int64(r.End) && r.Nodes[0].Addr != m.to.Addr() { // the master comes first
			return fmt.Errorf("slot %d is not served by %s yet", m.slot, m.to.Addr())
		}
	}
	return nil
}
