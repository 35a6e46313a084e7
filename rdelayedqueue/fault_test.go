package rdelayedqueue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// patience bounds a wait that has no promised end of its own.
const patience = 30 * time.Second

// rig is a server of a test's own with a proxy before it.
type rig struct {
	server *redistest.Server
	proxy  *faulttest.Proxy
	redis  *redis.Client // goes past the proxy
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t)
	return &rig{server: s, proxy: faulttest.NewProxy(t, s.Addr()), redis: s.Client(t)}
}

// client returns a client that reaches the server through the proxy.
func (r *rig) client(t *testing.T) *redlatch.Client { return connect(t, r.proxy.Addr()) }

// direct returns a client that goes past the proxy.
func (r *rig) direct(t *testing.T) *redlatch.Client { return connect(t, r.server.Addr()) }

func connect(t *testing.T, addr string) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	c, err := redlatch.New(rdb, redlatch.WithCloseGrace(100*time.Millisecond), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func queue(c *redlatch.Client, opts ...rdelayedqueue.QueueOption) *rdelayedqueue.Queue[job] {
	return redlatch.GetDelayedQueue[job](c, "jobs", opts...)
}
