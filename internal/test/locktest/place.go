package locktest

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Place runs a test on a Redis of some sort.
type Place func(t *testing.T, test func(t *testing.T, s *Server))

// Server is a Redis of some sort, and how to reach it.
type Server struct {
	// Redis is a plain client beside those under test.
	Redis redis.UniversalClient
	// Fake says that the test runs in a bubble, where time passes only while everybody sleeps.
	Fake bool

	connect func(t *testing.T) redis.UniversalClient
}

// Client returns a new client with connections of its own. It is closed when the test ends.
func (s *Server) Client(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	c, err := redlatch.New(s.connect(t), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// InMemory is a server in this process, in a bubble of fake time.
func InMemory(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	InBubble(t, func(t *testing.T, b *Bubble) {
		test(t, &Server{Redis: b.Redis, Fake: true, connect: func(t *testing.T) redis.UniversalClient {
			return b.connect(t, b.wires())
		}})
	})
}

// OnServer is a real server, which all tests of a binary share.
func OnServer(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	shared := redistest.Shared(t)
	test(t, &Server{Redis: shared.Client(t), connect: func(t *testing.T) redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: shared.Addr()})
		t.Cleanup(func() { closeClient(t, rdb) })
		return rdb
	}})
}

// OnCluster is a cluster of three masters, which all tests of a binary share.
func OnCluster(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	shared := redistest.SharedCluster(t)
	test(t, &Server{Redis: shared.Client(t), connect: func(t *testing.T) redis.UniversalClient {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: shared.Addrs()})
		t.Cleanup(func() { closeClient(t, rdb) })
		return rdb
	}})
}

func closeClient(t *testing.T, rdb redis.UniversalClient) {
	if err := rdb.Close(); !errors.Is(err, redis.ErrClosed) {
		assert.NoError(t, err)
	}
}
