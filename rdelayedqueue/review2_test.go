package rdelayedqueue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestIDOfACancelledReplacementIsFree(t *testing.T) {
	for _, dead := range []bool{false, true} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			q := jobs(b.Peer(t))
			offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
			require.NoError(t, take(t, q).Ack(t.Context()))
			assert.Equal(t, rdelayedqueue.Added, replace(t, q, "2", 0))
			if dead {
				require.NoError(t, take(t, q).Reject(t.Context(), "no"))
			}
			ok, err := q.Cancel(t.Context(), "id")
			require.NoError(t, err)
			require.True(t, ok)
			_, outcome, err := q.OfferNew(t.Context(), job{Name: "3"}, 0, rdelayedqueue.WithID("id"))
			require.NoError(t, err)
			assert.Equal(t, rdelayedqueue.Added, outcome)
		})
	}
}

func TestReplacementAtATime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", time.Hour, rdelayedqueue.WithID("id"))
		_, err := q.OfferAt(t.Context(), job{Name: "2"}, time.Now().Add(time.Minute), rdelayedqueue.WithID("id"), rdelayedqueue.WithReplace())
		require.NoError(t, err)
		start := time.Now()
		m := take(t, q)
		assert.Equal(t, "2", m.Value.Name)
		assert.InDelta(t, 60, time.Since(start).Seconds(), 0.1)
		_, err = q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{
			{ID: "id", Value: job{Name: "3"}, Replace: true}, {ID: "id", Value: job{Name: "4"}, Replace: true, Delay: time.Minute},
			{ID: "x", Value: job{Name: "x"}}, {ID: "x", Value: job{Name: "y"}, Replace: true}, {ID: "id", Value: job{Name: "5"}},
		})
		require.NoError(t, err)
		require.NoError(t, m.Ack(t.Context()))
		n := take(t, q)
		assert.Equal(t, "y", n.Value.Name)
		require.NoError(t, n.Ack(t.Context()))
		assert.Equal(t, "4", take(t, q).Value.Name)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, q))
	})
}

// A claim of an older version has no client.
func TestClaimsOfTheOldLayoutGoOn(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]){
		"ack":  func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) { require.NoError(t, m.Ack(t.Context())) },
		"nack": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) { require.NoError(t, m.Nack(t.Context(), 0)) },
		"snooze": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Snooze(t.Context(), 0))
		},
		"replace": func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			replace(t, q, "2", 0)
			require.NoError(t, m.Extend(t.Context(), time.Minute))
			require.NoError(t, m.Ack(t.Context()))
			assert.Equal(t, "2", take(t, q).Value.Name)
		},
		"cancel": func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			ok, err := q.Cancel(t.Context(), "id")
			require.NoError(t, err)
			require.True(t, ok)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t))
				offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
				m := take(t, q)
				claim, _, _ := strings.Cut(b.Hash(t, "redlatch_dq:{jobs}:claims")["id"], " ")
				require.NoError(t, b.Redis.HSet(t.Context(), "redlatch_dq:{jobs}:claims", "id", claim).Err())
				require.NoError(t, b.Redis.HSet(t.Context(), "redlatch_dq:{jobs}:meta", "layout", 1).Err())
				do(t, q, m)
			})
		})
	}
}

// Sleepers hear of each change of a pause in time.
func TestChangesOfAPauseMakeNothingLate(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, q *rdelayedqueue.Queue[job]){
		"endless to short": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			require.NoError(t, q.Pause(t.Context()))
			time.Sleep(20 * time.Second)
			require.NoError(t, q.PauseFor(t.Context(), time.Second))
		},
		"long to short": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			require.NoError(t, q.PauseFor(t.Context(), time.Hour))
			time.Sleep(20 * time.Second)
			require.NoError(t, q.PauseFor(t.Context(), time.Second))
		},
		"short to longer": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			require.NoError(t, q.PauseFor(t.Context(), time.Second))
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, q.PauseFor(t.Context(), time.Second))
		},
		"short, endless, short": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			require.NoError(t, q.PauseFor(t.Context(), time.Second))
			require.NoError(t, q.Pause(t.Context()))
			time.Sleep(3 * time.Second)
			require.NoError(t, q.PauseFor(t.Context(), time.Second))
		},
		"after a pause that is over": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			require.NoError(t, q.PauseFor(t.Context(), time.Millisecond))
			time.Sleep(20 * time.Second)
		},
	} {
		for _, before := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					operator := jobs(b.Peer(t))
					var at time.Time
					for range 3 {
						consume(t, jobs(b.Peer(t)), func(context.Context, *rdelayedqueue.Message[job]) error {
							at = time.Now()
							return nil
						})
					}
					time.Sleep(time.Second)
					if before {
						offer(t, operator, "1", 1100*time.Millisecond)
						time.Sleep(time.Second)
					}
					change(t, operator)
					start := time.Now()
					if !before {
						offer(t, operator, "1", 0)
					}
					time.Sleep(20 * time.Second)
					synctest.Wait()
					if name == "after a pause that is over" && before {
						return
					}
					require.False(t, at.IsZero())
					assert.LessOrEqual(t, at.Sub(start), 1100*time.Millisecond)
				})
			})
		}
	}
}
