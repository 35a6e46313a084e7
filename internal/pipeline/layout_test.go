package pipeline

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/script"
)

// cluster is one node that has a dead address until it is moved.
type cluster struct {
	rdb   *redis.ClusterClient
	moved atomic.Bool
	loads atomic.Int64 // of the layout
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c, mini := &cluster{}, miniredis.NewMiniRedis()
	c.rdb = redis.NewClusterClient(&redis.ClusterOptions{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			c.loads.Add(1)
			addr := "10.0.0.1:1"
			if c.moved.Load() {
				addr = "10.0.0.2:1"
			}
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr == "10.0.0.1:1" {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			conn, err := mini.Dial()
			return pipe.Buffer(conn), err
		},
		DialerRetries: 1,
	})
	t.Cleanup(func() {
		assert.NoError(t, c.rdb.Close())
		mini.Close()
		time.Sleep(2 * time.Second) // go-redis's own dials end
	})
	return c
}

// F29
func TestRefusedCallsFindTheNewMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t)
		b := New(c.rdb, time.Minute)
		t.Cleanup(b.Close)
		s := script.New("test", "return 1")
		try := func() error { return b.Do(t.Context(), s.Call(1, "k"), SendOptions{}) }
		for range 100 {
			err := try()
			require.True(t, script.Refused(err), "%v", err)
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, c.loads.Load(), int64(40), "a few times a second at the most")
		c.moved.Store(true)
		require.Error(t, try())
		time.Sleep(time.Second) // the layout is loaded again without another call
		require.NoError(t, try())

		before := c.loads.Load()
		for range 100 {
			require.NoError(t, try())
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, before, c.loads.Load(), "nothing is asked while all is well")
	})
}

// F25
func TestPipelinedCallsOnARefusedConnectionHaveItsError(t *testing.T) {
	refuse := func(c *server.Peer, _ string, _ []string) { c.WriteError("WRONGPASS invalid password") }
	s := node(t, "AUTH", refuse)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr().String(), Password: "wrong"})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	b := New(rdb, time.Minute)
	t.Cleanup(b.Close)
	one := script.New("test", "return 1")
	calls := []*script.Call{one.Call(1, "k"), one.Call(1, "k"), one.Call(1, "k")}
	b.sendAll(t.Context(), calls)
	for _, call := range calls {
		assert.ErrorContains(t, call.Err(), "WRONGPASS")
		assert.Equal(t, script.NotDone, script.Judge(call.Err()))
	}
}
