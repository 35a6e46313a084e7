package rdelayedqueue_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestOfferBatchReturnsIDsAlsoWhenNothingWasSent(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		items := []rdelayedqueue.Item[job]{{}, {ID: "a"}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ids, err := q.OfferBatch(ctx, items)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, ids, 2)
		assert.NotEmpty(t, ids[0])
		assert.Equal(t, "a", ids[1])

		require.NoError(t, p.Close())
		ids, err = q.OfferBatch(t.Context(), items)
		require.ErrorIs(t, err, redlatch.ErrClosed)
		assert.Len(t, ids, 2)
		assert.Empty(t, p.Sent())
	})
}

func TestEndlessBackoffIsALongOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return errors.New("no") },
			rdelayedqueue.WithBackoff(func(int) time.Duration { return math.MaxInt64 }))
		offer(t, q, "a", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Failed: 1}, stats(t, q))
	})
}
