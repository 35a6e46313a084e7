package rdelayedqueue_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func takeSome(t *testing.T, q *rdelayedqueue.Queue[job], n int) (ids []string, messages []*rdelayedqueue.Message[job]) {
	t.Helper()
	for len(messages) < n {
		some, err := q.TakeBatch(t.Context(), n-len(messages))
		require.NoError(t, err)
		messages = append(messages, some...)
	}
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids, messages
}

func TestHigherPriorityGoesFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for i, p := range []int{0, 5, 9, 1, 5, 0, 9} {
			_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(strconv.Itoa(10*p+i)), rdelayedqueue.WithPriority(p))
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		_, err := q.Offer(t.Context(), job{}, time.Hour, rdelayedqueue.WithID("later"), rdelayedqueue.WithPriority(9))
		require.NoError(t, err)
		s := stats(t, q)
		assert.Equal(t, [10]int{9: 3, 5: 2, 1: 1}, s.Priorities)
		assert.Equal(t, 7, s.Ready)
		assert.Equal(t, 1, s.Delayed)
		ids, messages := takeSome(t, q, 7)
		assert.Equal(t, []string{"92", "96", "51", "54", "13", "0", "5"}, ids)
		for _, m := range messages {
			require.NoError(t, m.Ack(t.Context()))
		}
		began := time.Now()
		ids, _ = takeSome(t, q, 1)
		assert.Equal(t, []string{"later"}, ids)
		assert.InDelta(t, time.Hour, time.Since(began), float64(time.Second))
	})
}

func TestGroupIsOneAtATimeAndInOrder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for i := range 6 {
			group := "ab"[i%2 : i%2+1]
			_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(group+strconv.Itoa(i)), rdelayedqueue.WithGroup(group))
			require.NoError(t, err)
		}
		ids, messages := takeSome(t, q, 2)
		assert.Equal(t, []string{"a0", "b1"}, ids)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 4, InFlight: 2, Groups: 2}, withoutAge(stats(t, q)))
		require.NoError(t, messages[0].Ack(t.Context()))
		ids, more := takeSome(t, q, 1)
		assert.Equal(t, []string{"a2"}, ids)
		require.NoError(t, more[0].Nack(t.Context(), time.Minute))
		require.NoError(t, messages[1].Ack(t.Context()))
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"b3"}, ids)
		require.NoError(t, more[0].Ack(t.Context()))
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"b5"}, ids)
		require.NoError(t, more[0].Ack(t.Context()))
		began := time.Now()
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"a2"}, ids, "the group waits for the retry")
		assert.InDelta(t, time.Minute, time.Since(began), float64(time.Second))
		require.NoError(t, more[0].Ack(t.Context()))
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"a4"}, ids)
		require.NoError(t, more[0].Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
		for _, key := range b.Keys(t) {
			assert.NotContains(t, key, "groups")
			assert.NotContains(t, key, "places")
		}
	})
}

func withoutAge(s rdelayedqueue.Stats) rdelayedqueue.Stats {
	s.Oldest = 0
	return s
}
