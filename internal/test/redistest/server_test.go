package redistest_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestStartedServerAnswers(t *testing.T) {
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Set(t.Context(), "key", "value", 0).Err())

	opts, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	assert.Equal(t, "value", rdb.Get(t.Context(), "key").Val())
}

func TestArgsReachTheServer(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "secret", "--maxmemory-policy", "allkeys-lru")
	policy := s.Client(t).ConfigGet(t.Context(), "maxmemory-policy").Val()
	assert.Equal(t, "allkeys-lru", policy["maxmemory-policy"])
}

func TestRestartKeepsThePortAndLosesTheData(t *testing.T) {
	s := redistest.Start(t)
	addr := s.Addr()
	require.NoError(t, s.Client(t).Set(t.Context(), "key", "value", 0).Err())

	for _, end := range []func(){s.Stop, s.Kill, s.Pause, func() {}} {
		end()
		s.Restart()
		assert.Equal(t, addr, s.Addr())
		require.ErrorIs(t, s.Client(t).Get(t.Context(), "key").Err(), redis.Nil)
	}
}

func TestEndedServerRefusesConnections(t *testing.T) {
	s := redistest.Start(t)
	s.Pause()
	s.Stop()
	require.Error(t, s.Client(t).Ping(t.Context()).Err())
	s.Stop()
	s.Kill()
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	s := redistest.Start(t)
	opts, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	opts.ContextTimeoutEnabled, opts.MaxRetries = true, -1
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	require.NoError(t, rdb.Ping(t.Context()).Err())

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var timeout net.Error
	require.ErrorAs(t, rdb.Ping(ctx).Err(), &timeout)
	assert.True(t, timeout.Timeout(), "no answer")

	s.Resume()
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

func TestSharedServerIsOneAndHidesItsGoroutines(t *testing.T) {
	before := goleak.IgnoreCurrent()
	a, b := redistest.Shared(t), redistest.Shared(t)
	assert.Equal(t, a.Addr(), b.Addr())
	require.NoError(t, goleak.Find(before))
	require.NoError(t, a.Client(t).Ping(t.Context()).Err())
}

func TestManyServersAtOnceFindPorts(t *testing.T) {
	redistest.Require(t)
	addrs := make(chan string, 6)
	t.Run("group", func(t *testing.T) {
		for range cap(addrs) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				addrs <- redistest.Start(t).Addr()
			})
		}
	})
	close(addrs)
	seen := map[string]bool{}
	for addr := range addrs {
		seen[addr] = true
	}
	assert.Len(t, seen, cap(addrs))
}

// outcome records how Require ends a test.
type outcome struct {
	testing.TB
	skipped, failed bool
}

func (o *outcome) Helper()      {}
func (o *outcome) Skip(...any)  { o.skipped = true }
func (o *outcome) Fatal(...any) { o.failed = true }

func TestRequireSkipsOrFailsWithoutServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDLATCH_REQUIRE_REDIS", "")
	skip := &outcome{TB: t}
	redistest.Require(skip)
	assert.True(t, skip.skipped && !skip.failed, "skips")

	t.Setenv("REDLATCH_REQUIRE_REDIS", "1")
	fail := &outcome{TB: t}
	redistest.Require(fail)
	assert.True(t, fail.failed, "fails")
}

func TestRequirePassesWithServer(t *testing.T) {
	if os.Getenv("REDLATCH_REQUIRE_REDIS") != "1" {
		redistest.Require(t)
	}
	o := &outcome{TB: t}
	redistest.Require(o)
	assert.False(t, o.skipped || o.failed)
}
