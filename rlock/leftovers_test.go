package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F19
func TestNamesUsedOnceLeaveNoKeys(t *testing.T) {
	t.Parallel()
	const tokenTTL = time.Second // the least that is allowed
	server := serve(t)
	rdb := server.Client(t)
	client := clientAt(t, server.Addr(), redlatch.WithTokenTTL(tokenTTL))
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for range faulttest.Rounds(t, 100, 2000) {
				assert.NoError(t, client.GetLock(freshName("f19")).Do(t.Context(), nothing))
				assert.NoError(t, client.GetFencedLock(freshName("f19")).Do(t.Context(), nothing))
			}
		})
	}
	workers.Wait()
	locks, err := rdb.Keys(t.Context(), "f19:*").Result()
	require.NoError(t, err)
	assert.Empty(t, locks, "keys of locks")
	redistest.Eventually(t, tokenTTL+5*time.Second, "tokens expire", func() error {
		n, err := rdb.DBSize(t.Context()).Result()
		if err == nil && n > 0 {
			err = fmt.Errorf("%d keys", n)
		}
		return err
	})
}

// F19
func TestTokensRiseWhateverHappensToTheirKey(t *testing.T) {
	server := serve(t)
	rdb := server.Client(t)
	client := clientAt(t, server.Addr())
	lock := client.GetFencedLock("f19")
	var last int64
	rises := func(what string) {
		t.Helper()
		hold, err := lock.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(t.Context()))
		assert.Greater(t, hold.Token(), last, what)
		last = hold.Token()
	}
	for range 50 {
		rises("at first")
	}
	for _, tc := range []struct {
		what string
		harm func(ctx context.Context, key string) error
	}{
		{"deleted", func(ctx context.Context, key string) error { return rdb.Del(ctx, key).Err() }},
		{"expired", func(ctx context.Context, key string) error { return rdb.PExpire(ctx, key, -time.Millisecond).Err() }},
		{"flushed", func(ctx context.Context, _ string) error { return rdb.FlushAll(ctx).Err() }},
		{"older", func(ctx context.Context, key string) error { return rdb.Set(ctx, key, 1, time.Hour).Err() }},
		{"not a number", func(ctx context.Context, key string) error { return rdb.Set(ctx, key, "x", time.Hour).Err() }},
		{"ahead of the clock", func(ctx context.Context, key string) error {
			last += time.Hour.Microseconds()
			return rdb.Set(ctx, key, last, time.Hour).Err()
		}},
	} {
		require.NoError(t, tc.harm(t.Context(), "redisson_lock_token:{f19}"))
		rises(tc.what)
		rises("after " + tc.what)
	}
}

// fence is a resource that refuses who was overtaken.
type fence struct{ highest int64 }

func (f *fence) write(token int64) bool {
	if token < f.highest {
		return false
	}
	f.highest = token
	return true
}

// evictedLease leaves half a second between the renewal that notices an eviction and the local end of the lease.
const evictedLease = time.Second

// F19
func TestEvictedLockIsNoticedAndFenced(t *testing.T) {
	server := serve(t, "--maxmemory-policy", "allkeys-lru")
	rdb := server.Client(t)
	for round := range faulttest.Rounds(t, 3, 50) {
		faulttest.Steady(t, server.Addr(), evictedLease, 4*stillParts, func(lease time.Duration) error {
			require.NoError(t, rdb.FlushAll(t.Context()).Err()) // among very many keys the lock would hardly be chosen
			return evicted(t, server, rdb, lease, fmt.Sprint("f19:evicted:", round))
		})
	}
}

// evicted has a held lock evicted, and requires that its renewal tells.
func evicted(t *testing.T, server *redistest.Server, rdb *redis.Client, lease time.Duration, name string) error {
	t.Helper()
	var resource fence
	first := clientAt(t, server.Addr(), redlatch.WithWatchdogTimeout(lease))
	second := clientAt(t, server.Addr(), redlatch.WithWatchdogTimeout(lease))
	hold, err := first.GetFencedLock(name).Lock(t.Context())
	require.NoError(t, err)
	require.True(t, resource.write(hold.Token()))

	gone := evict(t, rdb, name)
	other, err := second.GetFencedLock(name).Lock(t.Context())
	require.NoError(t, err)
	assert.Greater(t, other.Token(), hold.Token())
	assert.True(t, resource.write(other.Token()))

	<-hold.Context().Done()
	late := time.Since(gone)
	t.Logf("noticed after %v", late)
	assert.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost)
	assert.False(t, resource.write(hold.Token()), "a stale write was accepted")
	assert.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld)
	kept := errors.Join(context.Cause(other.Context()), other.Unlock(t.Context()))
	// A renewal is due after a third of the lease at most; that may take a stillParts-th longer, in several steps.
	return errors.Join(kept, above("time to spare", lease/3+lease/stillParts-late, 0))
}

// evict writes to a full server until it evicts the key, and returns when that was seen.
func evict(t *testing.T, rdb *redis.Client, key string) time.Time {
	t.Helper()
	used := memory(t, rdb)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(used+(1<<20))).Err())
	value := strings.Repeat("x", 8<<10)
	for i := range 500 {
		pipe := rdb.Pipeline()
		for j := range 50 {
			pipe.Set(t.Context(), fmt.Sprint("filler:", i, ":", j), value, time.Minute)
		}
		there := pipe.Exists(t.Context(), key)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		if there.Val() == 0 {
			seen := time.Now()
			require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
			return seen
		}
	}
	require.NoError(t, errors.New("the lock was not evicted"))
	return time.Time{}
}

func memory(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	var used int
	_, err = fmt.Sscan(info["Memory"]["used_memory"], &used)
	require.NoError(t, err)
	return used
}
