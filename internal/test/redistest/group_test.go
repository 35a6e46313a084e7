package redistest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestClusterServesEverySlot(t *testing.T) {
	c := redistest.SharedCluster(t)
	require.Len(t, c.Addrs(), 3)
	rdb := c.Client(t)
	for i := range 30 {
		key := fmt.Sprint("redistest:", i)
		require.NoError(t, rdb.Set(t.Context(), key, i, 0).Err())
		require.NoError(t, rdb.Del(t.Context(), key).Err())
	}
	for _, node := range c.Nodes() {
		info := node.Client(t).ClusterInfo(t.Context()).Val()
		assert.Contains(t, info, "cluster_state:ok")
		assert.Contains(t, info, "cluster_known_nodes:3")
	}
}

func TestRestartedClusterNodeComesBack(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	node := c.Nodes()[1]
	node.Restart()
	rdb := node.Client(t)
	assert.Contains(t, rdb.ClusterInfo(t.Context()).Val(), "cluster_known_nodes:3")
}

func TestReplicaHasWhatTheMasterHas(t *testing.T) {
	master := redistest.Start(t)
	require.NoError(t, master.Client(t).Set(t.Context(), "key", "value", 0).Err())
	replica := redistest.StartReplica(t, master)
	assert.Equal(t, "value", replica.Client(t).Get(t.Context(), "key").Val())
}

func TestReplicaOfServerWithPassword(t *testing.T) {
	master := redistest.Start(t, "--requirepass", "secret")
	replica := redistest.StartReplica(t, master)
	require.NoError(t, replica.Client(t).Ping(t.Context()).Err())
}

func TestFailoverMakesTheReplicaMaster(t *testing.T) {
	master := redistest.Start(t)
	require.NoError(t, master.Client(t).Set(t.Context(), "key", "value", 0).Err())
	replica := redistest.StartReplica(t, master)
	group := redistest.StartSentinel(t, master, "main", 2, 3)
	require.Len(t, group.Addrs(), 3)
	require.Equal(t, master.Addr(), group.Master())
	rdb := group.Client(t)
	require.Equal(t, "value", rdb.Get(t.Context(), "key").Val())

	group.Failover()
	assert.Equal(t, replica.Addr(), group.Master())
	assert.Equal(t, "value", replica.Client(t).Get(t.Context(), "key").Val())
}

func TestSentinelReplacesDeadMaster(t *testing.T) {
	redistest.Long(t)
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	group := redistest.StartSentinel(t, master, "main", 2, 3)
	master.Kill()
	group.AwaitMaster(master.Addr())
	assert.Equal(t, replica.Addr(), group.Master())
}

func TestClusterIsReshapedWhileItServes(t *testing.T) {
	redistest.Long(t)
	c := redistest.StartCluster(t, 3)
	rdb := c.Client(t)
	const key, gone = "{reshaped}1", "{reshaped}2"
	require.NoError(t, rdb.Set(t.Context(), key, "value", 0).Err())
	old := c.Owner(t, key)
	replica := c.AddReplica(t, old)

	c.Failover(t, replica)
	assert.Equal(t, replica.Addr(), c.Owner(t, key).Addr())
	assert.Equal(t, "value", rdb.Get(t.Context(), key).Val())
	c.Failover(t, old)
	assert.Equal(t, old.Addr(), c.Owner(t, key).Addr())

	goal := c.Nodes()[0]
	if goal == old {
		goal = c.Nodes()[1]
	}
	m := c.Migrate(t, key, goal)
	assert.Equal(t, "value", rdb.Get(t.Context(), key).Val(), "still in the old place")
	m.Move(t, key, gone)
	assert.ErrorContains(t, old.Client(t).Get(t.Context(), key).Err(), "ASK")
	assert.Equal(t, "value", rdb.Get(t.Context(), key).Val(), "in the new place already")
	m.Finish(t)
	assert.Equal(t, goal.Addr(), c.Owner(t, key).Addr())
	assert.Equal(t, "value", goal.Client(t).Get(t.Context(), key).Val())
}

func TestMastersComeAndGo(t *testing.T) {
	redistest.Long(t)
	c := redistest.StartCluster(t, 3)
	const key = "comes and goes"
	require.NoError(t, c.Client(t).Set(t.Context(), key, "value", 0).Err())
	added := c.AddMaster(t, key)
	assert.Equal(t, added.Addr(), c.Owner(t, key).Addr())
	assert.Equal(t, "value", c.Client(t).Get(t.Context(), key).Val())
	c.Remove(t, added, c.Nodes()[0])
	require.Len(t, c.Addrs(), 3)
	assert.Equal(t, c.Nodes()[0].Addr(), c.Owner(t, key).Addr())
	assert.Equal(t, "value", c.Client(t).Get(t.Context(), key).Val())
}
