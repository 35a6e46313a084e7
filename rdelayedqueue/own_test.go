package rdelayedqueue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// replace offers a message that replaces another, and returns what became of it.
func replace(t *testing.T, q *rdelayedqueue.Queue[job], name string, delay time.Duration, opts ...rdelayedqueue.OfferOption) rdelayedqueue.Outcome {
	t.Helper()
	_, outcome, err := q.OfferNew(t.Context(), job{Name: name}, delay, append(opts, rdelayedqueue.WithID("id"), rdelayedqueue.WithReplace())...)
	require.NoError(t, err)
	return outcome
}

func TestLastOfManyOffersIsDeliveredOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		start := time.Now()
		assert.Equal(t, rdelayedqueue.Added, replace(t, q, "1", 5*time.Second))
		for _, name := range []string{"2", "3", "4"} {
			time.Sleep(4 * time.Second)
			assert.Equal(t, rdelayedqueue.Replaced, replace(t, q, name, 5*time.Second))
		}
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
		m := take(t, q)
		assert.Equal(t, "4", m.Value.Name)
		assert.InDelta(t, 17, time.Since(start).Seconds(), 0.1)
		require.NoError(t, m.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
		assert.Equal(t, rdelayedqueue.Added, replace(t, q, "5", 0), "an id of a message that was acknowledged lately keeps none out")
	})
}

func TestReplacedMessageBeginsAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(2))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"), rdelayedqueue.WithHeaders(map[string]string{"a": "1"}))
		require.NoError(t, take(t, q).Nack(t.Context(), time.Hour))
		assert.Equal(t, rdelayedqueue.Replaced, replace(t, q, "2", 0))
		m := take(t, q)
		assert.Equal(t, 1, m.Attempt)
		assert.Equal(t, "2", m.Value.Name)
		assert.Empty(t, m.Headers)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, q))
	})
}

// F8: what replaces a message in flight is due when that claim has ended, in whatever way, and its own delay is over.
func TestReplacementOfAMessageInFlightComesAfterIt(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, m *rdelayedqueue.Message[job]){
		"ack":    func(t *testing.T, m *rdelayedqueue.Message[job]) { require.NoError(t, m.Ack(t.Context())) },
		"nack":   func(t *testing.T, m *rdelayedqueue.Message[job]) { require.NoError(t, m.Nack(t.Context(), time.Hour)) },
		"reject": func(t *testing.T, m *rdelayedqueue.Message[job]) { require.NoError(t, m.Reject(t.Context(), "no")) },
		"crash":  func(_ *testing.T, m *rdelayedqueue.Message[job]) { <-m.Context().Done() },
	} {
		for _, delay := range []time.Duration{0, time.Minute} {
			t.Run(name+" "+delay.String(), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p, dead := b.Peer(t, redlatch.WithObserver(redlatch.Observer{DeadLetter: func(context.Context, redlatch.DeadLetterEvent) {
						assert.Fail(t, "nothing has died")
					}})), jobs(b.Peer(t))
					q := jobs(p, rdelayedqueue.WithMaxAttempts(1))
					offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
					m := take(t, q)
					start := time.Now()
					assert.Equal(t, rdelayedqueue.Replaced, replace(t, dead, "2", time.Hour))
					assert.Equal(t, rdelayedqueue.Replaced, replace(t, dead, "3", delay))
					nothing(t, q)
					require.NoError(t, m.Extend(t.Context(), 10*time.Second), "its claim goes on")
					end(t, m)
					next := take(t, q)
					assert.Equal(t, "3", next.Value.Name)
					assert.Equal(t, 1, next.Attempt)
					assert.LessOrEqual(t, time.Since(start), max(delay, 10*time.Second)+time.Second)
					assert.GreaterOrEqual(t, time.Since(start), delay)
					require.NoError(t, next.Ack(t.Context()))
					assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
				})
			})
		}
	}
}

func TestReplacementOutlivesALostReplyOfTheEnd(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, m *rdelayedqueue.Message[job]) error{
		"ack":  func(t *testing.T, m *rdelayedqueue.Message[job]) error { return m.Ack(t.Context()) },
		"nack": func(t *testing.T, m *rdelayedqueue.Message[job]) error { return m.Nack(t.Context(), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				q := jobs(p)
				offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
				m := take(t, q)
				p.LoseReplies(1)
				assert.Equal(t, rdelayedqueue.Replaced, replace(t, q, "2", 0))
				p.LoseReplies(2)
				require.NoError(t, end(t, m))
				next := take(t, q)
				assert.Equal(t, "2", next.Value.Name)
				require.NoError(t, next.Ack(t.Context()))
				assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
			})
		})
	}
}

func TestReplacementOfAMessageWhoseClaimRanOutMayBeRescheduled(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(1))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		m := take(t, q)
		replace(t, q, "2", 0)
		<-m.Context().Done()
		time.Sleep(time.Second)
		ok, err := q.Reschedule(t.Context(), "id", time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		next := take(t, q)
		assert.Equal(t, "2", next.Value.Name)
		assert.Equal(t, 1, next.Attempt)
	})
}

func TestOffersWithTheIDOfADeadLetterSaySo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		require.NoError(t, take(t, q).Reject(t.Context(), "no"))
		id, outcome, err := q.OfferNew(t.Context(), job{}, 0, rdelayedqueue.WithID("id"))
		require.ErrorIs(t, err, rdelayedqueue.ErrDead)
		assert.Equal(t, "id", id)
		assert.Zero(t, outcome)
		_, err = q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID("id"), rdelayedqueue.WithReplace())
		require.ErrorIs(t, err, rdelayedqueue.ErrDead)
		ids, err := q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{{ID: "id"}, {ID: "b"}, {}})
		require.ErrorIs(t, err, rdelayedqueue.ErrDead)
		assert.ErrorContains(t, err, `["id"]`)
		assert.Len(t, ids, 3)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 2, Dead: 1}, stats(t, q))
		ok, err := q.Cancel(t.Context(), "id")
		require.NoError(t, err)
		require.True(t, ok)
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
	})
}

func TestMessageThatIsNotBegunInTimeExpires(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var died []redlatch.DeadLetterEvent
		q := jobs(b.Peer(t, redlatch.WithObserver(redlatch.Observer{DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) { died = append(died, e) }})))
		_, err := q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{
			{ID: "late", Expiry: time.Minute}, {ID: "delayed", Delay: time.Minute, Expiry: time.Minute + time.Second}, {ID: "begun", Expiry: 3 * time.Minute},
		})
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		m, err := q.TakeBatch(t.Context(), 3)
		require.NoError(t, err)
		require.Len(t, m, 2)
		assert.Equal(t, "begun", m[0].ID)
		assert.Equal(t, "delayed", m[1].ID, "its time counts from when it was due")
		e, err := q.Get(t.Context(), "late")
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Dead, e.State)
		assert.Equal(t, "expired", e.Error)
		require.Len(t, died, 1)
		assert.Equal(t, "expired", died[0].Cause)

		require.NoError(t, m[0].Nack(t.Context(), time.Hour))
		time.Sleep(2 * time.Hour)
		again := take(t, q)
		for again.ID != "begun" {
			again = take(t, q)
		}
		assert.Equal(t, 2, again.Attempt, "its first attempt has begun in time")

		ok, err := q.Redrive(t.Context(), "late")
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(50 * time.Second)
		for again.ID != "late" {
			again = take(t, q)
		}
	})
}

func TestMessageExpiresInAPause(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		require.NoError(t, q.PauseFor(t.Context(), 2*time.Minute))
		offer(t, q, "1", 0, rdelayedqueue.WithExpiry(time.Minute))
		offer(t, q, "2", 0, rdelayedqueue.WithExpiry(3*time.Minute))
		assert.Equal(t, "2", take(t, q).Value.Name)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1, Dead: 1}, stats(t, q))
	})
}

func TestAttemptsOfAMessageGoBeforeThoseOfItsConsumer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(5))
		attempts := map[string]int{}
		consume(t, q, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
			attempts[m.ID]++
			if attempts[m.ID] > 8 {
				return nil
			}
			return errors.New("no")
		}, rdelayedqueue.WithMaxAttempts(3), rdelayedqueue.WithBackoff(func(int) time.Duration { return time.Second }))
		offer(t, q, "", 0, rdelayedqueue.WithID("consumer"))
		offer(t, q, "", 0, rdelayedqueue.WithID("own"), rdelayedqueue.WithMaxAttempts(2))
		offer(t, q, "", 0, rdelayedqueue.WithID("endless"), rdelayedqueue.WithMaxAttempts(0))
		_, err := q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{{ID: "item", MaxAttempts: 1}, {ID: "item of no number"}})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[string]int{"consumer": 3, "own": 2, "endless": 9, "item": 1, "item of no number": 3}, attempts)
		assert.Equal(t, rdelayedqueue.Stats{Dead: 4}, stats(t, q))
	})
}

func TestAttemptsOfAMessageCountWhenItsProcessesDie(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "", 0, rdelayedqueue.WithID("a"), rdelayedqueue.WithMaxAttempts(1))
		<-take(t, q).Context().Done()
		time.Sleep(time.Second)
		nothing(t, q)
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))
	})
}

func TestHeadersTravelWithTheMessage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		trace := redlatch.Observer{OfferStart: func(ctx context.Context, e redlatch.OfferStartEvent) context.Context {
			e.Headers["trace"] = "abc"
			return ctx
		}}
		q := jobs(b.Peer(t, redlatch.WithObserver(trace)))
		headers := map[string]string{"tenant": "ä\n1", "empty": ""}
		offer(t, q, "1", 0, rdelayedqueue.WithID("a"), rdelayedqueue.WithHeaders(headers), rdelayedqueue.WithMaxAttempts(3))
		_, err := q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{{ID: "b", Headers: headers}})
		require.NoError(t, err)
		want := map[string]string{"tenant": "ä\n1", "empty": "", "trace": "abc"}
		for range 2 {
			m := take(t, q)
			assert.Equal(t, want, m.Headers)
			e, err := q.Get(t.Context(), m.ID)
			require.NoError(t, err)
			assert.Equal(t, want, e.Headers)
		}
		assert.Len(t, headers, 2, "the caller's map is left alone")
	})
}

func TestBadOptionsOfAnOfferAreInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		large := map[string]string{"a": strings.Repeat("x", 4<<10)}
		for name, opt := range map[string]rdelayedqueue.OfferOption{
			"replace without an id": rdelayedqueue.WithReplace(), "attempts": rdelayedqueue.WithMaxAttempts(-1),
			"no expiry": rdelayedqueue.WithExpiry(0), "a negative expiry": rdelayedqueue.WithExpiry(-time.Second),
			"a long expiry": rdelayedqueue.WithExpiry(101 * 365 * 24 * time.Hour), "large headers": rdelayedqueue.WithHeaders(large),
		} {
			_, err := q.Offer(t.Context(), job{}, 0, opt)
			assert.ErrorIs(t, err, redlatch.ErrInvalid, name)
		}
		for name, item := range map[string]rdelayedqueue.Item[job]{
			"replace without an id": {Replace: true}, "attempts": {MaxAttempts: -1}, "expiry": {Expiry: -1}, "headers": {Headers: large},
		} {
			_, err := q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{{}, item})
			assert.ErrorIs(t, err, redlatch.ErrInvalid, name)
			assert.ErrorContains(t, err, "item 1", name)
		}
		assert.Empty(t, p.Sent())
	})
}

func TestCancelEndsAHandlerWhereverItRuns(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, operator := jobs(b.Peer(t)), jobs(b.Peer(t))
		var causes []error
		consume(t, q, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			if m.Value.Name == "2" {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return errors.New("interrupted")
		})
		time.Sleep(time.Second) // it sleeps, so that it hears its channel
		offer(t, operator, "1", 0, rdelayedqueue.WithID("id"))
		time.Sleep(time.Second)
		ok, err := operator.Cancel(t.Context(), "id")
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
		offer(t, operator, "2", 0, rdelayedqueue.WithID("id"))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, causes, 1)
		assert.ErrorIs(t, causes[0], rdelayedqueue.ErrCancelled)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q), "what it returned is ignored, and the new message is done")
		ok, err = operator.Cancel(t.Context(), "id")
		require.NoError(t, err)
		assert.False(t, ok)
	})
}

// F19: also one that does not hear of it.
func TestCancelledMessageEndsWithItsRenewal(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, operator := jobs(p), jobs(b.Peer(t))
		var ended time.Time
		offer(t, operator, "1", 0, rdelayedqueue.WithID("id")) // it is there when the consumer comes, which never sleeps
		consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), rdelayedqueue.ErrCancelled)
			ended = time.Now()
			return ctx.Err()
		})
		time.Sleep(time.Second)
		start := time.Now()
		ok, err := operator.Cancel(t.Context(), "id")
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		assert.LessOrEqual(t, ended.Sub(start), 10*time.Second)
		assert.NotZero(t, ended)
	})
}

func TestReplacementIsCancelledWithTheMessageInFlight(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		m := take(t, q)
		replace(t, q, "2", 0)
		ok, err := q.Cancel(t.Context(), "id")
		require.NoError(t, err)
		assert.True(t, ok)
		assert.ErrorIs(t, m.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
		nothing(t, q)
	})
}

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
		assert.Equal(t, "fresh", take(t, q).Value.Name)
		assert.LessOrEqual(t, p.Scripts()-before, 15)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1, Dead: 1000}, stats(t, q))
	})
}
