package rdelayedqueue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F19
func TestEmptyQueueLeavesNoKeysBehind(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for range 3 {
			offer(t, q, "a", 0)
			require.NoError(t, take(t, q).Ack(t.Context()))
		}
		offer(t, q, "b", 0, rdelayedqueue.WithID("b"))
		require.NoError(t, take(t, q).Ack(t.Context()))
		id := offer(t, q, "c", time.Hour)
		_, err := q.Cancel(t.Context(), id)
		require.NoError(t, err)
		for _, key := range b.Keys(t) {
			assert.Positive(t, b.TTL(t, key), "%s stays for ever", key)
		}
		time.Sleep(25 * time.Hour)
		assert.Empty(t, b.Keys(t))
	})
}
