package rdelayedqueue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const seriesKey = "redlatch_dq:{jobs}:series"

// counted returns the sum of what was counted in the last hour, without its time and lateness.
func counted(t *testing.T, q *rdelayedqueue.Queue[job]) (sum rdelayedqueue.Minute) {
	t.Helper()
	all, err := q.Series(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 60)
	for _, m := range all {
		sum.Offered, sum.Done, sum.Failed, sum.Dead = sum.Offered+m.Offered, sum.Done+m.Done, sum.Failed+m.Failed, sum.Dead+m.Dead
	}
	return sum
}

// ends are the ways in which a message may end, or its attempt, and what is counted then, beside its own offer. It is in flight.
var ends = map[string]struct {
	end  func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job])
	want rdelayedqueue.Minute
}{
	"ack": {func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Ack(t.Context()))
		require.NoError(t, m.Ack(t.Context()))
	}, rdelayedqueue.Minute{Done: 1}},
	"nack": {func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Nack(t.Context(), 0))
		require.ErrorIs(t, m.Nack(t.Context(), 0), rdelayedqueue.ErrNotHeld)
	}, rdelayedqueue.Minute{Failed: 1}},
	"last attempt": {func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Nack(t.Context(), 0))
		require.NoError(t, take(t, q).Nack(t.Context(), 0))
	}, rdelayedqueue.Minute{Failed: 2, Dead: 1}},
	"reject": {func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Reject(t.Context(), "no"))
	}, rdelayedqueue.Minute{Failed: 1, Dead: 1}},
	"snooze": {func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Snooze(t.Context(), 0))
	}, rdelayedqueue.Minute{}},
	"successor": {func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Successor(t.Context(), job{}, 0))
	}, rdelayedqueue.Minute{Offered: 1, Done: 1}},
	"replaced, ack": {func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		replace(t, q, "2", 0)
		require.NoError(t, m.Ack(t.Context()))
	}, rdelayedqueue.Minute{Offered: 1}},
	"replaced, nack": {func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		replace(t, q, "2", 0)
		require.NoError(t, m.Nack(t.Context(), 0))
	}, rdelayedqueue.Minute{Offered: 1}},
	"cancelled": {func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		_, err := q.Cancel(t.Context(), m.ID)
		require.NoError(t, err)
	}, rdelayedqueue.Minute{}},
	"crash": {func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		<-m.Context().Done()
		<-take(t, q).Context().Done()
		time.Sleep(time.Second)
		nothing(t, q)
	}, rdelayedqueue.Minute{Dead: 1}},
	"late nack of a dead letter": {func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
		require.NoError(t, m.Nack(t.Context(), 0))
		last := take(t, q)
		<-last.Context().Done()
		time.Sleep(time.Second)
		nothing(t, q)
		require.NoError(t, last.Nack(t.Context(), 0))
	}, rdelayedqueue.Minute{Failed: 2, Dead: 1}},
}

func TestSeriesCountsEachEndOfAMessage(t *testing.T) {
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(2))
				offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
				e.end(t, q, take(t, q))
				e.want.Offered++
				assert.Equal(t, e.want, counted(t, q))
			})
		})
	}
}

func TestSeriesCountsOffersThatPutAMessageThere(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(4))
		_, err := q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{{}, {ID: "id"}, {ID: "id"}, {ID: "id", Replace: true}})
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Minute{Offered: 3}, counted(t, q))
		offer(t, q, "kept", 0, rdelayedqueue.WithID("id"))
		replace(t, q, "2", time.Hour)
		assert.Equal(t, rdelayedqueue.Minute{Offered: 4}, counted(t, q))
		_, err = q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 3))
		require.ErrorIs(t, err, rdelayedqueue.ErrFull)
		assert.Equal(t, rdelayedqueue.Minute{Offered: 4}, counted(t, q))
	})
}

// F2
func TestSeriesCountsACallOnceWhoseReplyIsLost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithMaxAttempts(2))
		calls := map[string]func(m *rdelayedqueue.Message[job]) error{
			"ack":       func(m *rdelayedqueue.Message[job]) error { return m.Ack(t.Context()) },
			"nack":      func(m *rdelayedqueue.Message[job]) error { return m.Nack(t.Context(), 0) },
			"reject":    func(m *rdelayedqueue.Message[job]) error { return m.Reject(t.Context(), "no") },
			"successor": func(m *rdelayedqueue.Message[job]) error { return m.Successor(t.Context(), job{}, time.Hour) },
		}
		for _, call := range calls {
			for _, lost := range []int{0, 2} { // at first the server has to know the scripts
				p.LoseReplies(lost)
				offer(t, q, "a", 0)
				m := take(t, q)
				p.LoseReplies(lost)
				require.NoError(t, call(m))
				_, err := q.Purge(t.Context())
				require.NoError(t, err)
				_, err = q.Purge(t.Context(), rdelayedqueue.Ready)
				require.NoError(t, err)
			}
		}
		assert.Equal(t, rdelayedqueue.Minute{Offered: 10, Done: 4, Failed: 4, Dead: 2}, counted(t, q))
	})
}

// nextMinute sleeps until a minute begins.
func nextMinute() { time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) }

func TestSeriesHasTheLastHour(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		empty, err := q.Series(t.Context())
		require.NoError(t, err)
		assert.Len(t, empty, 60)
		assert.Empty(t, b.Keys(t))

		const n = 80
		for i := range n { // twice nothing is counted for a while
			if i == 5 || i == 15 {
				time.Sleep(20 * time.Minute)
			}
			nextMinute()
			for range 1 + i%2 {
				offer(t, q, "a", 0)
				require.NoError(t, take(t, q).Ack(t.Context()))
			}
		}
		all, err := q.Series(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 60)
		for i, m := range all {
			count := 1 + (n-60+i)%2
			want := rdelayedqueue.Minute{Offered: count, Done: count, Start: time.Now().Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute)}
			m.Lateness = 0
			assert.Equal(t, want, m)
		}
		assert.Len(t, b.Hash(t, seriesKey), 60*3, "what is older is gone")

		assert.InDelta(t, (2 * time.Hour).Seconds(), b.TTL(t, seriesKey).Seconds(), 1)
		time.Sleep(2*time.Hour + time.Second)
		assert.NotContains(t, b.Keys(t), seriesKey)
		assert.Equal(t, rdelayedqueue.Minute{}, counted(t, q))
	})
}

func TestSeriesHasTheGreatestLateness(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		lateness := func() float64 {
			all, err := q.Series(t.Context())
			require.NoError(t, err)
			return all[59].Lateness.Seconds()
		}
		nextMinute()
		greatest := 0.0
		for _, late := range []float64{5, 20, 10} {
			offer(t, q, "a", time.Second)
			offer(t, q, "b", 2*time.Second, rdelayedqueue.WithPriority(3)) // is claimed first
			time.Sleep(time.Second + time.Duration(late)*time.Second)
			messages, err := q.TakeBatch(t.Context(), 2)
			require.NoError(t, err)
			for _, m := range messages {
				require.NoError(t, m.Ack(t.Context()))
			}
			greatest = max(greatest, late)
			assert.InDelta(t, greatest, lateness(), 0.01)
		}
		nextMinute()
		assert.Zero(t, lateness())
		offer(t, q, "a", time.Second)
		take(t, q)
		assert.InDelta(t, 0, lateness(), 0.01)
	})
}

func TestSeriesOnARealServerCountsWhatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := queue(r.client(t), rdelayedqueue.WithMaxAttempts(1))
	const n = 300
	for i := range n {
		if i%50 == 0 {
			r.proxy.DropReply(faulttest.Script, 1)
		}
		_, err := q.Offer(t.Context(), job{N: i}, 0)
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		switch i % 3 {
		case 0:
			require.NoError(t, m.Ack(t.Context()))
		case 1:
			require.NoError(t, m.Nack(t.Context(), 0))
		case 2:
			require.NoError(t, m.Reject(t.Context(), "x"))
		}
	}
	assert.Equal(t, rdelayedqueue.Minute{Offered: n, Done: n / 3, Failed: 2 * n / 3, Dead: 2 * n / 3}, counted(t, q))
}
