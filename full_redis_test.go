package redlatch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F28
func TestLocksOutliveAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	const lease = time.Second
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })

	inner, outer := map[string]*rlock.Hold{}, map[string]*rlock.Hold{}
	for kind, get := range lockKinds {
		l := get(c, kind)
		outer[kind] = locktest.Acquire(t, t.Context(), l)
		inner[kind] = locktest.Acquire(t, outer[kind].Context(), l)
	}
	rw := c.GetReadWriteLock("downgraded")
	outer["downgraded"] = locktest.Acquire(t, t.Context(), rw)
	inner["downgraded"] = locktest.Acquire(t, outer["downgraded"].Context(), rw.RLocker())

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = c.GetLock("another").TryLock(t.Context())
	require.ErrorContains(t, err, "OOM")
	over := time.After(3 * lease)
	for kind, hold := range inner {
		select {
		case <-hold.Context().Done():
			require.Fail(t, "lost", "%s: %v", kind, context.Cause(hold.Context()))
		case <-over:
			over = time.After(0)
		}
	}
	for kind, hold := range inner {
		require.NoError(t, context.Cause(hold.Context()), kind)
		if kind == "downgraded" {
			locktest.Unlock(t, outer[kind])
			locktest.Unlock(t, hold)
			continue
		}
		require.NoError(t, hold.Unlock(t.Context()), "a level of %s", kind)
		require.NoError(t, outer[kind].Unlock(t.Context()), kind)
		assert.Zero(t, admin.Exists(t.Context(), kind).Val(), kind)
	}
}
