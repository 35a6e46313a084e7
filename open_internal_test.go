package redlatch

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestErrorOfCloseIsSeenOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	c, err := New(rdb)
	require.NoError(t, err)
	closed := 0
	c.core.OnClosed = func() error {
		closed++
		return assert.AnError
	}
	require.ErrorIs(t, c.Close(), assert.AnError)
	require.NoError(t, c.Close())
	assert.Equal(t, 1, closed)
	require.NoError(t, rdb.Close())
}

func TestEvictionPolicyIsReadFromAnyINFO(t *testing.T) {
	for info, want := range map[string]string{
		"": "noeviction",
		"# Memory\r\nmaxmemory:1024\r\nmaxmemory_policy:allkeys-lru\r\n": "allkeys-lru",
		"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n":    "noeviction",
		"maxmemory:1024\nmaxmemory_policy:volatile-ttl\n":                "volatile-ttl", // as a proxy may tell it
		"maxmemory:1024\r\n":            "noeviction",
		"# Memory\r\nno colon\r\n:\r\n": "noeviction",
	} {
		assert.Equal(t, want, evictionPolicy(info), "%q", info)
	}
}

func FuzzEvictionPolicy(f *testing.F) {
	for _, info := range []string{"", "# Memory\r\nmaxmemory:1024\r\nmaxmemory_policy:allkeys-lru\r\n", ":\n", "maxmemory_policy"} {
		f.Add(info)
	}
	f.Fuzz(func(t *testing.T, info string) {
		policy := evictionPolicy(info)
		if policy != "noeviction" {
			assert.Contains(t, info, "maxmemory_policy")
			assert.Contains(t, info, policy)
		}
	})
}

// go-redis below v9.23 would have a subscription to Sentinel for ever, see naming.
func TestClientThatIsClosedWhileItDialsBehindSentinelLeavesNoGoroutines(t *testing.T) {
	url := "redis://" + redistest.StartSentinel(t, redistest.Start(t), "main", 1, 1).Addrs()[0] + "?master_name=main"
	others := goleak.IgnoreCurrent()
	var closed atomic.Bool
	rdb, err := dial(url, "name", &closed)
	require.NoError(t, err)
	answer := make(chan error)
	begun, goOn := redistest.HoldDials(rdb)
	go func() { answer <- rdb.Ping(context.Background()).Err() }()
	<-begun
	closed.Store(true) // as the Close of an opened client does
	require.NoError(t, rdb.Close())
	goOn()
	require.ErrorIs(t, <-answer, redis.ErrClosed)
	redistest.Eventually(t, 10*time.Second, "no goroutines", func() error { return goleak.Find(others) })
}

// F16: go-redis's own dialer of TLS connections ignores contexts, and a subscription that is lost would wait for it.
func TestSecureDialEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, silent.Close()) })
	for what, url := range map[string]string{"single": "rediss://%s", "cluster": "rediss://%s?addr=localhost:1", "Sentinel": "rediss://%s?master_name=m"} {
		rdb, err := dial(fmt.Sprintf(url, silent.Addr()), "name", new(atomic.Bool))
		require.NoError(t, err, what)
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		var dialer func(ctx context.Context, network, addr string) (net.Conn, error)
		switch rdb := rdb.(type) {
		case *redis.Client:
			dialer = rdb.Options().Dialer
		case *redis.ClusterClient:
			dialer = rdb.Options().Dialer
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err = dialer(ctx, "tcp", silent.Addr().String()) // the listener never answers the handshake
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		assert.Less(t, time.Since(start), dialTimeout/2, what)
	}
}
