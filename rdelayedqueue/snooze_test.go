package rdelayedqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F25: of two ends of an attempt of which the first is not answered the second one is not done.
func TestSecondEndOfAnAttemptIsNotCalledDone(t *testing.T) {
	type message = rdelayedqueue.Message[job]
	ends := map[string]func(ctx context.Context, m *message) error{
		"snooze": func(ctx context.Context, m *message) error { return m.Snooze(ctx, time.Hour) },
		"reject": func(ctx context.Context, m *message) error { return m.Reject(ctx, "no") },
		"nack":   func(ctx context.Context, m *message) error { return m.Nack(ctx, time.Hour) },
	}
	for _, order := range [][2]string{{"snooze", "reject"}, {"snooze", "nack"}, {"reject", "snooze"}, {"nack", "reject"}, {"nack", "snooze"}} {
		t.Run(order[0]+" "+order[1], func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				died := 0
				p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{DeadLetter: func(context.Context, redlatch.DeadLetterEvent) { died++ }}))
				q := jobs(p)
				offer(t, q, "", 0)
				m := take(t, q)
				p.LoseReplies(1000)
				require.ErrorIs(t, ends[order[0]](t.Context(), m), redlatch.ErrUnknown)
				p.LoseReplies(0)
				require.ErrorIs(t, ends[order[1]](t.Context(), m), rdelayedqueue.ErrNotHeld)
				assert.Zero(t, died)
			})
		})
	}
}

func TestSnoozeCountsNoAttempt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(2))
		id := offer(t, q, "a", 0)
		for _, attempt := range []int{1, 2} {
			for range 3 {
				m := take(t, q)
				require.Equal(t, attempt, m.Attempt)
				start := time.Now()
				require.NoError(t, m.Snooze(t.Context(), time.Minute))
				assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Failed: attempt - 1}, stats(t, q))
				e, err := q.Get(t.Context(), id)
				require.NoError(t, err)
				assert.Equal(t, attempt-1, e.Attempt)
				assert.WithinDuration(t, start.Add(time.Minute), e.DueAt, 5*time.Millisecond)
				assert.ErrorIs(t, context.Cause(m.Context()), rdelayedqueue.ErrFinished)
				for _, err := range []error{
					m.Snooze(t.Context(), time.Minute), m.Snooze(t.Context(), 0), m.Nack(t.Context(), 0), m.Ack(t.Context()),
				} {
					require.ErrorIs(t, err, rdelayedqueue.ErrNotHeld)
					require.NotErrorIs(t, err, redlatch.ErrUnknown)
				}
			}
			if attempt == 1 {
				stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return errors.New("no") })
				time.Sleep(time.Minute + 500*time.Millisecond)
				require.NoError(t, stop())
			}
		}
		e, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, "no", e.Error, "that of the last attempt that failed is kept")
		require.NoError(t, take(t, q).Nack(t.Context(), 0))
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q), "that was the last attempt")
	})
}

// F8: a handler that cannot work on a message now does not use up its attempts.
func TestHandlerThatSnoozesMakesNoDeadLetter(t *testing.T) {
	for name, snooze := range map[string]func(ctx context.Context, m *rdelayedqueue.Message[job]) error{
		"an error": func(context.Context, *rdelayedqueue.Message[job]) error { return rdelayedqueue.Snooze(time.Minute) },
		"wrapped": func(context.Context, *rdelayedqueue.Message[job]) error {
			return fmt.Errorf("shop closed: %w", rdelayedqueue.Snooze(time.Minute))
		},
		"joined": func(context.Context, *rdelayedqueue.Message[job]) error {
			return errors.Join(errors.New("shop closed"), rdelayedqueue.Snooze(time.Minute))
		},
		"a call": func(ctx context.Context, m *rdelayedqueue.Message[job]) error { return m.Snooze(ctx, time.Minute) },
		"both": func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			assert.NoError(t, m.Snooze(ctx, time.Minute))
			return rdelayedqueue.Snooze(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var log bytes.Buffer
				var ends []redlatch.HandleEndEvent
				p := b.Peer(t, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), redlatch.WithObserver(redlatch.Observer{
					HandleEnd:  func(_ context.Context, e redlatch.HandleEndEvent) { ends = append(ends, e) },
					DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) { assert.Fail(t, "a dead letter", "%+v", e) },
				}))
				q := jobs(p, rdelayedqueue.WithMaxAttempts(1))
				var begun []time.Time
				consume(t, q, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
					assert.Equal(t, 1, m.Attempt)
					if begun = append(begun, time.Now()); len(begun) < 4 {
						return snooze(ctx, m)
					}
					return nil
				})
				id := offer(t, q, "a", 0)
				time.Sleep(150 * time.Second)
				synctest.Wait()
				e, err := q.Get(t.Context(), id)
				require.NoError(t, err)
				assert.Equal(t, rdelayedqueue.Delayed, e.State)
				assert.Empty(t, e.Error)
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
				require.Len(t, begun, 4)
				require.Len(t, ends, 4)
				for i, e := range ends {
					if name != "both" || i == 3 {
						assert.NoError(t, e.Err)
					}
					assert.Equal(t, i < 3, e.Snoozed)
					if i > 0 {
						assert.WithinDuration(t, begun[i-1].Add(time.Minute), begun[i], 20*time.Millisecond)
					}
				}
				assert.Empty(t, log.String())
			})
		})
	}
}

func TestRejectGoesBeforeSnooze(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			return errors.Join(rdelayedqueue.Snooze(0), rdelayedqueue.Reject(errors.New("card refused")))
		})
		offer(t, q, "a", 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))
	})
}

const centuryAndMore = 100*365*24*time.Hour + 1

// A bad delay changes nothing: the message is held still.
func TestSnoozeOfABadDelayIsInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		offer(t, q, "a", 0)
		m := take(t, q)
		before := p.Scripts()
		for _, d := range []time.Duration{-1, centuryAndMore} {
			require.ErrorIs(t, m.Snooze(t.Context(), d), redlatch.ErrInvalid)
			require.ErrorIs(t, rdelayedqueue.Snooze(d), redlatch.ErrInvalid)
		}
		assert.EqualError(t, m.Snooze(t.Context(), -time.Second),
			`rdelayedqueue: snooze a message of "jobs": invalid argument: delay -1s is below 0s`)
		assert.Equal(t, before, p.Scripts())
		require.NoError(t, m.Snooze(t.Context(), centuryAndMore-1))
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
		var none *rdelayedqueue.Message[job]
		assert.ErrorIs(t, none.Snooze(t.Context(), 0), rdelayedqueue.ErrNotHeld)
	})
}

func TestHandlerThatSnoozesForABadDelayHasFailed(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, centuryAndMore} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(2))
			var attempts []int
			consume(t, q, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
				attempts = append(attempts, m.Attempt)
				return rdelayedqueue.Snooze(d)
			})
			id := offer(t, q, "a", 0)
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, []int{1, 2}, attempts)
			e, err := q.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, rdelayedqueue.Dead, e.State)
			assert.Contains(t, e.Error, "delay of a snooze")
		})
	}
}

// F8: an outage that begins beside it does not count an attempt either.
func TestSnoozeOutlivesAnOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithMaxAttempts(1))
		var attempts []int
		consume(t, q, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
			if attempts = append(attempts, m.Attempt); len(attempts) > 1 {
				return nil
			}
			p.Down(true)
			time.AfterFunc(10*time.Second, func() { p.Down(false) })
			return rdelayedqueue.Snooze(time.Minute)
		})
		offer(t, q, "a", time.Second) // the outage must not begin before the offer is answered
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q), "the delay counts from when Redis has the snooze")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{1, 1}, attempts)
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestRepeatedSnoozesOfAnOutageAreSentOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithVisibility(time.Hour))
		for range 2 { // the first one makes the script known
			offer(t, q, "a", 0)
			require.NoError(t, take(t, q).Snooze(t.Context(), time.Hour))
		}
		offer(t, q, "b", 0)
		m := take(t, q)
		p.Blackhole(true)
		for range 5 {
			require.ErrorIs(t, m.Snooze(t.Context(), time.Hour), redlatch.ErrUnknown)
		}
		p.Blackhole(false)
		before := p.Scripts()
		require.NoError(t, m.Snooze(t.Context(), time.Hour))
		synctest.Wait()
		assert.LessOrEqual(t, p.Scripts()-before, 1)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 3}, stats(t, q))
	})
}

// F8: the message is another consumer's by now, who may be at work on it.
func TestSnoozeOfAMessageThatAnotherHasChangesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p, rdelayedqueue.WithVisibility(time.Second)), jobs(b.Peer(t))
		offer(t, q, "a", 0)
		m := take(t, q)
		p.Blackhole(true)
		time.Sleep(2 * time.Second)
		mine := take(t, other)
		p.Blackhole(false)
		assert.Equal(t, 2, mine.Attempt)
		require.ErrorIs(t, m.Snooze(t.Context(), 0), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1, Failed: 1}, stats(t, other))
		require.NoError(t, mine.Snooze(t.Context(), 0))
		assert.Equal(t, 2, take(t, other).Attempt, "the first one counts")
	})
}

// F8: nobody else has begun to work on it.
func TestSnoozeAfterTheVisibilityCounts(t *testing.T) {
	for name, limit := range map[string]int{"due again": 2, "a dead letter": 1} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(limit), rdelayedqueue.WithVisibility(time.Second))
				offer(t, q, "a", 0)
				m := take(t, q)
				time.Sleep(2 * time.Second)
				if limit == 1 {
					nothing(t, q)
					require.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))
				}
				require.NoError(t, m.Snooze(t.Context(), time.Minute))
				s := stats(t, q)
				require.Equal(t, []int{1, 0, 0, 0}, []int{s.Delayed, s.Ready, s.InFlight, s.Dead})
				assert.Equal(t, 1, take(t, q).Attempt)
			})
		})
	}
}

// F8: a client that closes waits for its handlers, and for what they return.
func TestSnoozeWhileTheClientClosesCounts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p, rdelayedqueue.WithMaxAttempts(1)), jobs(b.Peer(t))
		began := make(chan struct{})
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			close(began)
			time.Sleep(2 * time.Second)
			return rdelayedqueue.Snooze(time.Minute)
		})
		offer(t, q, "a", 0)
		<-began
		require.NoError(t, p.Close())
		require.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, other))
		assert.Equal(t, 1, take(t, other).Attempt)
	})
}

// F7
func TestSnoozeWakesASleeperInTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		holder := jobs(b.Peer(t))
		offer(t, holder, "a", 0)
		m := take(t, holder)
		s := sleepers(t, b, 2)
		start := time.Now()
		require.NoError(t, m.Snooze(t.Context(), 3*time.Second)) // sooner than the safety check of anybody
		assert.WithinDuration(t, start.Add(3*time.Second), <-s.handled, 20*time.Millisecond)
	})
}

func TestTimeoutOfASnoozingHandler(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		stop := consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			<-ctx.Done()
			return rdelayedqueue.Snooze(time.Hour)
		}, rdelayedqueue.WithTimeout(time.Second), rdelayedqueue.WithBackoff(func(int) time.Duration { return time.Hour }))
		time.Sleep(3 * time.Second)
		require.NoError(t, stop())
		e, err := q.Get(t.Context(), "id")
		require.NoError(t, err)
		assert.Equal(t, 1, e.Attempt, "WithTimeout: the attempt has then failed, whatever the handler returns")
	})
}
