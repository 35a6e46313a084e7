package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Where not all are listed, the command says how many more there are.
func TestInfoOfACrowdSaysHowManyMore(t *testing.T) {
	r := newRig(t)
	o, err := redis.ParseURL(r.url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	permits := r.c.GetPermitSemaphore("uploads")
	require.NoError(t, permits.SetPermits(t.Context(), 130))
	_, err = permits.AcquireN(t.Context(), 120)
	require.NoError(t, err)
	for range 130 {
		_, err := r.c.GetReadWriteLock("prices").RLock(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, r.c.GetFairLock("orders").Do(t.Context(), func(ctx context.Context) error {
		for i := range 140 {
			require.NoError(t, rdb.RPush(ctx, "redisson_lock_queue:{orders}", fmt.Sprint("java:", i)).Err())
		}
		assert.Contains(t, r.must(t, "lock", "info", "orders"), "… and 40 more")
		return rdb.Del(ctx, "redisson_lock_queue:{orders}").Err()
	}))
	assert.Contains(t, r.must(t, "lock", "info", "prices"), "… and 30 more")
	assert.Contains(t, r.must(t, "ls", "prices"), " and 129 more, 0 writers wait")
	assert.Regexp(t, `10 of 130 available, held by [0-9a-f]{32} and 119 more, `, r.must(t, "ls", "uploads"))
	assert.Contains(t, r.must(t, "sem", "info", "uploads"), "… and 20 more")
	assert.NotContains(t, r.must(t, "lock", "info", "other"), "more")
	assert.Contains(t, r.must(t, "lock", "force", "prices", "--yes"), "… and 30 more")
}
