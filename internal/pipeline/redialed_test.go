package pipeline

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/script"
)

// F25: a cluster client of go-redis dials again for a pipeline whose connection was refused, and leaves the refusal in all calls but the
// first whose replies are lost then.
func TestPipelinedCallsThatWereRefusedAndThenSentAreUnknown(t *testing.T) {
	var ran, dials atomic.Int64
	last := node(t, "EVALSHA", func(c *server.Peer, _ string, _ []string) {
		if ran.Add(1) == 3 {
			c.Close()
		}
	})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DialerRetries:            1,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: last.Addr().String()}}}}, nil
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	b := New(rdb, time.Minute)
	t.Cleanup(b.Close)
	s := script.New("test", "return 1")
	calls := []*script.Call{s.Call(1, "k"), s.Call(1, "k"), s.Call(1, "k")}
	b.sendAll(t.Context(), calls)
	assert.EqualValues(t, 3, ran.Load(), "the second connection has carried all")
	for i, call := range calls {
		assert.Equal(t, script.Unknown, script.Judge(call.Err()), "call %d: %v", i, call.Err())
	}
}
