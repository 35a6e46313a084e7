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

func TestSuccessorFollowsUnderTheSameID(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(9))
		headers := map[string]string{"tenant": "7"}
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"), rdelayedqueue.WithHeaders(headers), rdelayedqueue.WithMaxAttempts(2))
		require.NoError(t, take(t, q).Nack(t.Context(), 0))
		m := take(t, q)
		require.Equal(t, 2, m.Attempt)
		start := time.Now()
		require.NoError(t, m.Successor(t.Context(), job{Name: "2"}, time.Minute))
		assert.ErrorIs(t, context.Cause(m.Context()), rdelayedqueue.ErrFinished)
		assert.ErrorIs(t, m.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
		m = take(t, q)
		assert.InDelta(t, 60, time.Since(start).Seconds(), 0.1)
		assert.Equal(t, "2", m.Value.Name)
		assert.Equal(t, "id", m.ID)
		assert.Equal(t, 1, m.Attempt)
		assert.Equal(t, headers, m.Headers)

		require.NoError(t, m.Successor(t.Context(), job{Name: "3"}, 0, rdelayedqueue.WithHeaders(map[string]string{}), rdelayedqueue.WithMaxAttempts(1)))
		m = take(t, q)
		assert.Empty(t, m.Headers)
		require.NoError(t, m.Nack(t.Context(), 0))
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q), "it has one attempt")
	})
}

func TestSuccessorKeepsTheExpiry(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithExpiry(time.Minute))
		require.NoError(t, take(t, q).Successor(t.Context(), job{Name: "2"}, time.Hour))
		time.Sleep(time.Hour + 50*time.Second)
		require.NoError(t, take(t, q).Successor(t.Context(), job{Name: "3"}, 0), "its time counts from when it was due")
		time.Sleep(2 * time.Minute)
		nothing(t, q)
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))

		offer(t, q, "1", 0, rdelayedqueue.WithExpiry(time.Minute))
		require.NoError(t, take(t, q).Successor(t.Context(), job{Name: "2"}, 0, rdelayedqueue.WithExpiry(time.Hour)))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "2", take(t, q).Value.Name, "it was told otherwise")
	})
}

func TestHandlersWorkInSteps(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		begun := make(chan int, 4)
		consume(t, jobs(b.Peer(t)), func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			begun <- m.Value.N
			if m.Value.N == 3 {
				return nil
			}
			return m.Successor(ctx, job{N: m.Value.N + 1}, time.Second)
		})
		start := time.Now()
		offer(t, q, "", 0)
		for n := range 4 {
			assert.Equal(t, n, <-begun)
		}
		assert.InDelta(t, 3, time.Since(start).Seconds(), 0.1, "a sleeper hears of each")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestSuccessorWhoseReplyIsLostComesOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, sound := jobs(p), jobs(b.Peer(t))
		offer(t, q, "1", 0)
		m := take(t, q)
		p.LoseReplies(2)
		require.NoError(t, m.Successor(t.Context(), job{Name: "2"}, time.Second))
		p.LoseReplies(0)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, sound))
		next := take(t, sound)
		assert.Equal(t, "2", next.Value.Name)
		require.NoError(t, next.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, sound))
	})
}

func TestSuccessorTakesThePlaceOfWhatHasReplacedItsMessage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		m := take(t, q)
		replace(t, q, "2", time.Hour)
		require.NoError(t, m.Successor(t.Context(), job{Name: "3"}, 0))
		assert.Equal(t, "3", take(t, q).Value.Name)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, q))
	})
}

func TestSuccessorOfAMessageThatAnotherHasIsNone(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, other := jobs(b.Peer(t)), jobs(b.Peer(t))
		offer(t, q, "1", 0)
		m := take(t, q)
		<-m.Context().Done()
		time.Sleep(time.Second)
		again := take(t, other)
		require.ErrorIs(t, m.Successor(t.Context(), job{Name: "2"}, 0), rdelayedqueue.ErrNotHeld)
		require.NoError(t, again.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

// F25: of two ends of an attempt of which the first is not answered the second one is not done.
func TestSuccessorOfAMessageThatWasEndedOtherwiseIsNone(t *testing.T) {
	type message = rdelayedqueue.Message[job]
	for name, end := range map[string]func(ctx context.Context, m *message) error{
		"nack":      func(ctx context.Context, m *message) error { return m.Nack(ctx, time.Hour) },
		"reject":    func(ctx context.Context, m *message) error { return m.Reject(ctx, "no") },
		"snooze":    func(ctx context.Context, m *message) error { return m.Snooze(ctx, time.Hour) },
		"successor": func(ctx context.Context, m *message) error { return m.Successor(ctx, job{Name: "2"}, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				q, sound := jobs(p), jobs(b.Peer(t))
				id := offer(t, q, "1", 0)
				m := take(t, q)
				p.LoseReplies(1000)
				require.ErrorIs(t, end(t.Context(), m), redlatch.ErrUnknown)
				p.LoseReplies(0)
				require.ErrorIs(t, m.Successor(t.Context(), job{Name: "3"}, 0), rdelayedqueue.ErrNotHeld)
				e, err := sound.Get(t.Context(), id)
				require.NoError(t, err)
				assert.NotEqual(t, "3", e.Value.Name)
			})
		})
	}
}

// F25: also if they arrive together.
func TestOneOfManySuccessorsOfAMessageCounts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		offer(t, q, "", 0)
		offer(t, q, "", 0)
		other, m := take(t, q), take(t, q)
		const tries = 5
		done := make(chan string, tries)
		p.Withhold(1)
		go func() { assert.NoError(t, other.Reject(t.Context(), "")) }()
		synctest.Wait() // it is sent again soon, and the others gather meanwhile
		for i := range tries {
			go func() {
				name := string(rune('a' + i))
				if m.Successor(t.Context(), job{Name: name}, 0) != nil {
					name = ""
				}
				done <- name
			}()
		}
		names := ""
		for range tries {
			names += <-done
		}
		assert.Equal(t, take(t, q).Value.Name, names)
	})
}

func TestSuccessorKeepsItsPlaceInAFullQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(1), rdelayedqueue.WithWait(time.Minute))
		consumers := jobs(b.Peer(t))
		offer(t, q, "1", 0)
		require.NoError(t, take(t, consumers).Successor(t.Context(), job{Name: "2"}, 0))
		m := take(t, consumers)
		done := make(chan error, 1)
		go func() {
			_, err := q.Offer(t.Context(), job{Name: "3"}, 0)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		start := time.Now()
		require.NoError(t, m.Ack(t.Context()))
		require.NoError(t, <-done)
		assert.Less(t, time.Since(start), 50*time.Millisecond, "its end wakes who waits for room")
	})
}

func TestBadSuccessorIsInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithMaxPayload(100))
		offer(t, q, "1", 0)
		m := take(t, q)
		before := p.Scripts()
		assert.ErrorIs(t, m.Successor(t.Context(), job{}, -1), redlatch.ErrInvalid)
		assert.ErrorIs(t, m.Successor(t.Context(), job{Name: string(make([]byte, 200))}, 0), redlatch.ErrInvalid)
		for _, opt := range []rdelayedqueue.OfferOption{rdelayedqueue.WithID("x"), rdelayedqueue.WithReplace(), rdelayedqueue.WithExpiry(-1)} {
			assert.ErrorIs(t, m.Successor(t.Context(), job{}, 0, opt), redlatch.ErrInvalid)
		}
		assert.ErrorIs(t, (*rdelayedqueue.Message[job])(nil).Successor(t.Context(), job{}, 0), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, before, p.Scripts())
		require.NoError(t, m.Ack(t.Context()))
	})
}
