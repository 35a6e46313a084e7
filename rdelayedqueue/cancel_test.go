package rdelayedqueue_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F3
func TestCancelledCallsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q, sound := queue(r.client(t)), queue(r.direct(t))
	r.proxy.Delay(2 * time.Millisecond)
	for range faulttest.Rounds(t, 100, 400) {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(10*time.Millisecond))
		id, err := q.Offer(ctx, job{}, 0, rdelayedqueue.WithID("same"))
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
		_, err = q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID("same"))
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "same", m.ID, id)
		ended, end := context.WithCancel(t.Context())
		end()
		require.NoError(t, m.Ack(ended), "Ack works although its context is done")
		s, err := sound.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, rdelayedqueue.Stats{}, s)
		require.NoError(t, r.redis.FlushAll(t.Context()).Err()) // the id is free again
	}
}

// F3
func TestDoneContextWins(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "a", 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := q.Take(ctx)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = q.Offer(ctx, job{}, 0)
		assert.ErrorIs(t, err, context.Canceled)
		assert.NoError(t, q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[job]) error { return nil }))
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{Ready: 1}, stats(t, q))
	})
}
