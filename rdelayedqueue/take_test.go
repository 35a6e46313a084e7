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
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestTakeBatchOfAnySizeHoldsNobodyUp(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		handled, taken := make(chan struct{}, 200), make(chan int, 1)
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			handled <- struct{}{}
			return nil
		}, rdelayedqueue.WithPrefetch(0))
		go func() {
			batch, err := q.TakeBatch(t.Context(), math.MaxInt)
			assert.NoError(t, err)
			taken <- len(batch)
		}()
		time.Sleep(time.Second)
		_, err := jobs(b.Peer(t)).OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 150))
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, taken, 1)
		n := <-taken
		assert.LessOrEqual(t, n, 100)
		assert.Len(t, handled, 150-n)
	})
}

// sealed is a codec that cannot read anything.
type sealed struct {
	codec.JSON
	refuse func()
}

func (s sealed) Decode([]byte, any) error {
	s.refuse()
	return errors.New("it is sealed")
}

func TestTakeOfWhatCannotBeDecodedEndsWithItsContext(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithCodec(sealed{refuse: func() { p.Blackhole(true) }}))
		defer p.Blackhole(false)
		for range 5 {
			offer(t, q, "a", 0)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := q.TakeBatch(ctx, 5)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestWhatCannotBeDecodedIsRejectedTogether(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithCodec(sealed{refuse: func() {}}))
		_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 100))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := p.Scripts()
		_, err = q.TakeBatch(ctx, 100)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, p.Scripts()-before, 20)
		assert.Equal(t, rdelayedqueue.Stats{Dead: 100}, stats(t, q))
	})
}

func TestRepeatedNacksOfAnOutageAreSentOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithVisibility(time.Hour))
		for range 2 { // the first one makes the script known
			offer(t, q, "a", 0)
			require.NoError(t, take(t, q).Reject(t.Context(), "x"))
		}
		offer(t, q, "b", 0)
		m := take(t, q)
		p.Blackhole(true)
		for range 5 {
			require.ErrorIs(t, m.Nack(t.Context(), time.Hour), redlatch.ErrUnknown)
		}
		p.Blackhole(false)
		before := p.Scripts()
		require.NoError(t, m.Nack(t.Context(), time.Hour))
		synctest.Wait()
		assert.LessOrEqual(t, p.Scripts()-before, 1)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Dead: 2}, stats(t, q))
	})
}
