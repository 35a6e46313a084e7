package rdelayedqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// The tests of this file fail: what they find is not mended on this branch.

// A backlog that has expired as a whole is in nobody's way.
func TestExpiredBacklogIsBuriedInFewCalls(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		items := make([]rdelayedqueue.Item[job], 1000)
		for i := range items {
			items[i].Expiry = time.Second
		}
		_, err := q.OfferBatch(t.Context(), items)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		offer(t, q, "fresh", 0)
		before := p.Scripts()
		take(t, q)
		assert.LessOrEqual(t, p.Scripts()-before, 20)
	})
}

func TestTimeoutOfASnoozingHandler(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		stop := consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			<-ctx.Done()
			return rdelayedqueue.Snooze(time.Hour)
		}, rdelayedqueue.WithTimeout(time.Second))
		time.Sleep(3 * time.Second)
		require.NoError(t, stop())
		e, err := q.Get(t.Context(), "id")
		require.NoError(t, err)
		assert.Equal(t, 1, e.Attempt, "WithTimeout: the attempt has then failed, whatever the handler returns")
	})
}
