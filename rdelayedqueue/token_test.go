package rdelayedqueue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestTokensRiseWithEachClaim(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		one, other := jobs(b.Peer(t)), jobs(b.Peer(t))
		last := int64(0)
		rises := func(m *rdelayedqueue.Message[job]) *rdelayedqueue.Message[job] {
			t.Helper()
			assert.Greater(t, m.Token(), last)
			last = m.Token()
			return m
		}
		offer(t, one, "a", 0)
		for range 3 { // after a failure
			require.NoError(t, rises(take(t, one)).Nack(t.Context(), 0))
			require.NoError(t, rises(take(t, other)).Nack(t.Context(), 0))
		}
		rises(take(t, one))
		time.Sleep(31 * time.Second) // its visibility is over
		require.NoError(t, rises(take(t, other)).Ack(t.Context()))
		_, err := one.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 10))
		require.NoError(t, err)
		batch, err := other.TakeBatch(t.Context(), 10)
		require.NoError(t, err)
		for _, m := range batch { // within one call
			rises(m)
		}
		require.NoError(t, b.Redis.FlushAll(t.Context()).Err())
		time.Sleep(time.Minute)
		offer(t, one, "b", 0)
		rises(take(t, one)) // after a loss of all data
		assert.Zero(t, (*rdelayedqueue.Message[job])(nil).Token())
	})
}

// Each claim is made after the handler before it has returned, so that a lower token would be seen.
func TestTokensRiseOverAllProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := faulttest.Rounds(t, 300, 3000)
	queues := []*rdelayedqueue.Queue[job]{queue(r.direct(t)), queue(r.direct(t)), queue(r.direct(t))}
	var mu sync.Mutex
	seen := map[int64]bool{}
	last, done := int64(0), make(chan struct{})
	var consumers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer consumers.Wait()
	defer stop()
	for _, q := range queues {
		consumers.Go(func() {
			assert.NoError(t, q.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
				mu.Lock()
				defer mu.Unlock()
				assert.False(t, seen[m.Token()], "each has its own")
				seen[m.Token()] = true
				if next := m.Value.N + 1; next < n {
					assert.Greater(t, m.Token(), last)
					last = m.Token()
					_, err := q.Offer(context.WithoutCancel(ctx), job{N: next}, 0) // claimed when this one is known
					return err
				}
				close(done)
				return nil
			}))
		})
	}
	_, err := queues[0].Offer(t.Context(), job{}, 0)
	require.NoError(t, err)
	<-done
}
