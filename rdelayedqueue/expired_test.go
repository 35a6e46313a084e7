package rdelayedqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// ranOut returns a queue in which n messages are ready since their claims ran out, and one since its time came.
func ranOut(t *testing.T, b *locktest.Bubble, n int) *rdelayedqueue.Queue[job] {
	t.Helper()
	q := jobs(b.Peer(t))
	for i := range n {
		offer(t, q, "x", 0, rdelayedqueue.WithID(fmt.Sprint(i)))
		take(t, q)
	}
	time.Sleep(31 * time.Second)
	offer(t, q, "x", time.Hour, rdelayedqueue.WithID("held"))
	ok, err := q.Reschedule(t.Context(), "held", 0)
	require.NoError(t, err)
	require.True(t, ok)
	return q
}

func TestClaimsThatRanOutAreReadyForEveryCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const n = 130
		q := ranOut(t, b, n)
		require.Equal(t, rdelayedqueue.Stats{Ready: n + 1}, stats(t, q))
		all := list(t, q, rdelayedqueue.Ready)
		assert.Len(t, all, n+1)
		for _, e := range all {
			assert.Equal(t, rdelayedqueue.Ready, e.State)
		}
		assert.Empty(t, list(t, q, rdelayedqueue.InFlight))
		e, err := q.Get(t.Context(), "0")
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Ready, e.State)

		ok, err := q.Cancel(t.Context(), "0")
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = q.Reschedule(t.Context(), "1", time.Hour)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, rdelayedqueue.Stats{Ready: n - 1, Delayed: 1}, stats(t, q))
		removed, err := q.Purge(t.Context(), rdelayedqueue.InFlight)
		require.NoError(t, err)
		assert.Zero(t, removed)
		removed, err = q.Purge(t.Context(), rdelayedqueue.Ready)
		require.NoError(t, err)
		assert.Equal(t, n-1, removed)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
	})
}

func TestClaimsThatLastAreInFlightForEveryCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "x", 0, rdelayedqueue.WithID("a"))
		take(t, q)
		e, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.InFlight, e.State)
		ok, err := q.Reschedule(t.Context(), "a", time.Hour)
		require.NoError(t, err)
		assert.False(t, ok)
		n, err := q.Purge(t.Context(), rdelayedqueue.Ready)
		require.NoError(t, err)
		assert.Zero(t, n)
		assert.Len(t, list(t, q, rdelayedqueue.InFlight), 1)
	})
}
