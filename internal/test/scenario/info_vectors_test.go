package scenario_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Java's permits may have no end.
func TestInfoOfPermitsWithoutEnd(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		const forever = 922337203685477
		expired := float64(time.Now().Add(-time.Second).UnixMilli())
		require.NoError(t, b.Redis.Set(t.Context(), "pool", 1, 0).Err())
		require.NoError(t, b.Redis.ZAdd(t.Context(), "{pool}:timeout",
			redis.Z{Member: "0123456789abcdef", Score: forever}, redis.Z{Member: "fedcba9876543210", Score: expired}).Err())
		info, err := c.GetPermitSemaphore("pool").Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, info.Permits)
		assert.Equal(t, 2, info.Available, "one has expired")
		require.Len(t, info.Holders, 1)
		assert.Negative(t, info.Holders[0].Left)
		assert.Greater(t, info.Holders[0].Left, -time.Second)
		assert.Equal(t, rsemaphore.Holder{ID: "30313233343536373839616263646566", Client: "3031323334353637", Left: info.Holders[0].Left}, info.Holders[0])
	})
}

// A hash of another program keeps a lock's name taken, whatever it has.
func TestForeignHashIsALockThatNobodyKnows(t *testing.T) {
	for name, fields := range map[string][]any{
		"a text":  {"customer", "bob"},
		"several": {"customer", "bob", "city", "Rome"},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				c := b.Peer(t)
				require.NoError(t, b.Redis.HSet(t.Context(), "orders", fields...).Err())
				for _, lock := range []interface {
					rlock.Locker
					IsLocked(ctx context.Context) (bool, error)
					TTL(ctx context.Context) (time.Duration, error)
				}{c.GetLock("orders"), c.GetFencedLock("orders"), c.GetFairLock("orders")} {
					locked, err := lock.IsLocked(t.Context())
					require.NoError(t, err)
					assert.True(t, locked)
					left, err := lock.TTL(t.Context())
					require.NoError(t, err)
					assert.Negative(t, left)
					_, err = lock.TryLock(t.Context(), rlock.WithHolder())
					var taken *rlock.TakenError
					require.ErrorAs(t, err, &taken)
					assert.True(t, taken.Info.Locked)
					assert.Zero(t, taken.Info.Levels)
				}
			})
		})
	}
}
