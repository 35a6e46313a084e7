package rdelayedqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestCancelledMessageIsNotReportedAsSnoozed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var ends []redlatch.HandleEndEvent
		p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{HandleEnd: func(_ context.Context, e redlatch.HandleEndEvent) { ends = append(ends, e) }}))
		q, operator := jobs(p), jobs(b.Peer(t))
		consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			<-ctx.Done()
			return rdelayedqueue.Snooze(time.Second)
		})
		time.Sleep(time.Second)
		offer(t, operator, "1", 0, rdelayedqueue.WithID("id"))
		time.Sleep(time.Second)
		ok, err := operator.Cancel(t.Context(), "id")
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, ends, 1)
		assert.False(t, ends[0].Snoozed, "%+v", ends[0])
	})
}

// What replaces a message in flight is handled in time by those that sleep, whatever became of the old one.
func TestReplacementIsNotLate(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, m *rdelayedqueue.Message[job]){
		"ack":    func(t *testing.T, m *rdelayedqueue.Message[job]) { require.NoError(t, m.Ack(t.Context())) },
		"snooze": func(t *testing.T, m *rdelayedqueue.Message[job]) { require.NoError(t, m.Snooze(t.Context(), time.Hour)) },
		"crash":  func(*testing.T, *rdelayedqueue.Message[job]) {},
	} {
		for _, delay := range []time.Duration{0, 3 * time.Second, 37 * time.Second} {
			t.Run(name+delay.String(), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					q := jobs(b.Peer(t))
					offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
					m := take(t, q)
					start := time.Now()
					var at time.Time
					for range 2 {
						consume(t, jobs(b.Peer(t)), func(context.Context, *rdelayedqueue.Message[job]) error {
							at = time.Now()
							return nil
						})
					}
					time.Sleep(time.Second)
					replace(t, q, "2", delay)
					replaced := time.Now()
					time.Sleep(time.Second)
					end(t, m)
					over := time.Now()
					if name == "crash" {
						over = start.Add(30 * time.Second)
					}
					time.Sleep(90 * time.Second)
					synctest.Wait()
					want := over
					if due := replaced.Add(delay); due.After(over) {
						want = due
					}
					assert.WithinDuration(t, want, at, 400*time.Millisecond)
				})
			})
		}
	}
}

// A client that stops gives the prefetched message back after it was replaced: the new one is due at its own time.
func TestReplacementOfAPrefetchedMessageIsNotLate(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "a", 0)
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			time.Sleep(2 * time.Second)
			return nil
		}, rdelayedqueue.WithPrefetch(5))
		var got string
		time.Sleep(time.Second)
		replace(t, q, "2", 5*time.Second)
		due := time.Now().Add(5 * time.Second)
		var at time.Time
		consume(t, jobs(b.Peer(t)), func(_ context.Context, m *rdelayedqueue.Message[job]) error {
			got, at = m.Value.Name, time.Now()
			assert.Equal(t, 1, m.Attempt)
			return nil
		})
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, stop())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, "2", got)
		assert.WithinDuration(t, due, at, 400*time.Millisecond)
	})
}
