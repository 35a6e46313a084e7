package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

// onShards returns the router of a cluster's sharded channels.
func onShards(t *testing.T, c *redistest.Cluster) (*pubsub.Shards, *redis.ClusterClient) {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	s := pubsub.NewSharded(rdb, pubsub.Options{OnFailure: func() { rdb.ReloadState(context.Background()) }})
	t.Cleanup(func() {
		s.Close()
		assert.NoError(t, rdb.Close())
	})
	return s, rdb
}

// publish sends a message as a script does on a server of this version.
func publish(t *testing.T, c *redistest.Cluster, channel, payload string) {
	t.Helper()
	verb := "spublish"
	if c.Nodes()[0].Major(t) < 7 {
		verb = "publish"
	}
	require.NoError(t, c.Client(t).Eval(t.Context(), "return redis.call('"+verb+"', ARGV[1], ARGV[2])", []string{channel}, channel, payload).Err())
}

func requireHeard(t *testing.T, e *ear, payload string) {
	t.Helper()
	redistest.Eventually(t, 5*time.Second, "message", func() error {
		if !slices.Contains(e.heard(), payload) {
			return errors.New("none")
		}
		return nil
	})
}

// subscribers returns how many subscription connections each node has.
func subscribers(t *testing.T, c *redistest.Cluster) (counts []int) {
	t.Helper()
	for _, node := range c.Nodes() {
		list, err := node.Client(t).Do(t.Context(), "client", "list", "type", "pubsub").Text()
		require.NoError(t, err)
		counts = append(counts, strings.Count(list, "\n"))
	}
	return counts
}

func TestShardedChannelsHaveAConnectionForEachNode(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	s, _ := onShards(t, cluster)
	ears := make([]ear, 100)
	for i := range ears {
		_, confirmed := s.Join(fmt.Sprint("channel:", i), &ears[i])
		require.False(t, confirmed)
	}
	requireConfirmations(t, ears, 1)
	assert.Equal(t, []int{1, 1, 1}, subscribers(t, cluster))
	for i := range ears {
		publish(t, cluster, fmt.Sprint("channel:", i), "0")
	}
	for i := range ears {
		requireHeard(t, &ears[i], "0")
	}
	assert.Equal(t, pubsub.Stats{Channels: 100, Messages: 100}, s.Stats())
}

// F4
func TestShardedChannelsFollowTheirSlot(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	s, _ := onShards(t, cluster)
	ears := make([]ear, 1)
	_, _ = s.Join("channel:{a}", &ears[0])
	requireConfirmations(t, ears, 1)
	for round, to := range slices.Concat(cluster.Nodes(), cluster.Nodes()) {
		if cluster.Owner(t, "{a}") == to {
			continue
		}
		cluster.Migrate(t, "{a}", to).Finish(t)
		redistest.Eventually(t, 10*time.Second, "a message after the move", func() error {
			payload := fmt.Sprint("round ", round)
			publish(t, cluster, "channel:{a}", payload)
			if !slices.Contains(ears[0].heard(), payload) {
				return errors.New("none")
			}
			return nil
		})
		requireLosses(t, ears, ears[0].confirmations()-1)
	}
}

// requireLosses requires that each subscription was lost n times and is back.
func requireLosses(t *testing.T, ears []ear, n int) {
	t.Helper()
	for i := range ears {
		losses, gone := ears[i].losses()
		require.Equal(t, n, losses, i)
		require.False(t, gone, i)
	}
}

// F4
func TestShardedChannelsLeaveAMasterThatBecameAReplica(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	replica := cluster.AddReplica(t, cluster.Owner(t, "{a}"))
	s, _ := onShards(t, cluster)
	ears := make([]ear, 1)
	_, _ = s.Join("channel:{a}", &ears[0])
	requireConfirmations(t, ears, 1)
	cluster.Failover(t, replica)
	if replica.Major(t) >= 7 { // plain channels are heard at every node
		redistest.AwaitSubscribers(t, replica.Client(t), "channel:{a}", 1)
	}
	publish(t, cluster, "channel:{a}", "0")
	requireHeard(t, &ears[0], "0")
	assert.Equal(t, uint64(0), s.Stats().Reconnects, "no connection was lost")
	requireLosses(t, ears, ears[0].confirmations()-1)
}

// F4
func TestKilledShardConnectionNotifiesItsListeners(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	s, _ := onShards(t, cluster)
	ears := make([]ear, 100)
	for i := range ears {
		_, _ = s.Join(fmt.Sprint("channel:", i), &ears[i])
	}
	requireConfirmations(t, ears, 1)
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client(t).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	}
	requireConfirmations(t, ears, 2)
	assert.EqualValues(t, 3, s.Stats().Reconnects)
	requireLosses(t, ears, 1)
	s.Close()
	for i := range ears {
		n, gone := ears[i].losses()
		require.Equal(t, 2, n)
		require.True(t, gone, "the router has closed")
	}
}

// F24
func TestChannelIsLeftWhileItsSlotMoves(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	s, _ := onShards(t, cluster)
	ears := make([]ear, 3)
	first, _ := s.Join("channel:{moving}", &ears[0])
	_, _ = s.Join("channel:{moving}other", &ears[1])
	requireConfirmations(t, ears[:2], 1)
	from := cluster.Owner(t, "{moving}")
	to := cluster.Nodes()[0]
	if to.Addr() == from.Addr() {
		to = cluster.Nodes()[1]
	}
	cluster.Migrate(t, "{moving}", to)
	rdb := from.Client(t)
	asked := func() int {
		stats, err := rdb.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		return strings.Count(stats, "unsubscribe:")
	}
	first.Leave()
	redistest.Eventually(t, 10*time.Second, "the channel is left", func() error {
		if asked() == 0 {
			return errors.New("no UNSUBSCRIBE")
		}
		return nil
	})
	_, _ = s.Join("channel:{moving}later", &ears[2]) // its confirmation comes after what was said to the UNSUBSCRIBE
	requireConfirmations(t, ears, 1)
	assert.Zero(t, s.Stats().Reconnects)
}

func TestShardedChannelIsSharedAndLeft(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	s, _ := onShards(t, cluster)
	ears := make([]ear, 3)
	first, _ := s.Join("channel:{shared}", &ears[0])
	requireConfirmations(t, ears[:1], 1)
	second, confirmed := s.Join("channel:{shared}", &ears[1])
	require.True(t, confirmed)
	publish(t, cluster, "channel:{shared}", "both")
	requireHeard(t, &ears[0], "both")
	requireHeard(t, &ears[1], "both")
	first.Leave()
	first.Leave()
	publish(t, cluster, "channel:{shared}", "one")
	requireHeard(t, &ears[1], "one")
	assert.NotContains(t, ears[0].heard(), "one")
	second.Leave()
	assert.Zero(t, s.Stats().Channels)
	third, _ := s.Join("channel:{shared}", &ears[2]) // the subscription lingers
	requireConfirmations(t, ears[2:], 1)
	third.Leave()

	s.Close()
	_, confirmed = s.Join("channel:{shared}", &ears[0])
	assert.False(t, confirmed)
	s.Close()
}
