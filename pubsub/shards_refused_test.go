package pubsub_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

// refusedEar is a listener that is told of refusals.
type refusedEar struct {
	ear
	refusals atomic.Int64
}

func (e *refusedEar) Refused(error) (known bool) {
	e.refusals.Add(1)
	return true
}

func TestListenerOfAShardedChannelIsToldThatItIsRefused(t *testing.T) {
	s, err := server.NewServer("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Register("SSUBSCRIBE", func(c *server.Peer, _ string, _ []string) {
		c.WriteError("NOPERM No permissions to access a channel")
	}))
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: s.Addr().String()}}}}, nil
		},
	})
	shards := pubsub.NewSharded(rdb, pubsub.Options{})
	t.Cleanup(func() {
		shards.Close()
		assert.NoError(t, rdb.Close())
	})
	var e refusedEar
	_, _ = shards.Join("a", &e)
	redistest.Eventually(t, 5*time.Second, "refusal", func() error {
		if e.refusals.Load() == 0 {
			return errors.New("none")
		}
		return nil
	})
}
