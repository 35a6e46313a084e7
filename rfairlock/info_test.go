package rfairlock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// Nobody has said until when the waiter is good, as of one in Redisson's queue whose score is gone.
func TestInfoDoesNotGuessHowLongAWaiterIsGood(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		lock := b.Peer(t).GetFairLock(key)
		hold := locktest.Acquire(t, t.Context(), lock)
		require.NoError(t, b.Redis.RPush(t.Context(), queue, "x").Err())
		info, err := lock.Info(t.Context())
		require.NoError(t, err)
		require.Len(t, info.Queue, 1)
		assert.Equal(t, "x", info.Queue[0].Owner)
		assert.Negative(t, info.Queue[0].Left)
		_, err = lock.TryLock(t.Context(), rlock.WithHolder())
		var taken *rlock.TakenError
		require.ErrorAs(t, err, &taken)
		assert.Equal(t, 1, taken.Info.Waiting)
		assert.Equal(t, hold.Owner(), taken.Info.Owner)
		locktest.Unlock(t, hold)
	})
}
