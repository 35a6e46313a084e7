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

// An Ack or Nack of a message that was replaced, whose second call lost its reply, makes no dead letter, and tells none.
func TestEndOfAReplacedMessageWhoseReplyIsLostTellsOfNoDeadLetter(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *locktest.Peer, m *rdelayedqueue.Message[job]) error{
		"nack": func(t *testing.T, p *locktest.Peer, m *rdelayedqueue.Message[job]) error {
			p.LoseReplies(1)
			return m.Nack(t.Context(), 0)
		},
		"reject": func(t *testing.T, p *locktest.Peer, m *rdelayedqueue.Message[job]) error {
			p.LoseReplies(1)
			return m.Reject(t.Context(), "no")
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var died []redlatch.DeadLetterEvent
				p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) { died = append(died, e) }}))
				q := jobs(p, rdelayedqueue.WithMaxAttempts(1))
				offer(t, q, "0", 0, rdelayedqueue.WithID("warm")) // the script is known
				require.NoError(t, take(t, q).Snooze(t.Context(), time.Hour))
				offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
				m := take(t, q)
				replace(t, q, "2", 0)
				require.NoError(t, end(t, p, m))
				assert.Empty(t, died)
				assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Ready: 1}, stats(t, q))
			})
		})
	}
}

func TestReplacementOfAMessageInFlightHasNoErrorOfTheOldOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return errors.New("old error") })
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, stop())
		m := take(t, q)
		assert.Equal(t, 2, m.Attempt)
		replace(t, q, "2", time.Hour)
		require.NoError(t, m.Ack(t.Context()))
		e, err := q.Get(t.Context(), "id")
		require.NoError(t, err)
		assert.Empty(t, e.Error)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
	})
}

func TestSnoozedMessageThatIsGivenBackDoesNotExpire(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "b", 0, rdelayedqueue.WithID("b"), rdelayedqueue.WithExpiry(time.Minute))
		require.NoError(t, take(t, q).Snooze(t.Context(), time.Second)) // its first attempt has begun
		offer(t, q, "a", 0, rdelayedqueue.WithID("a"))
		time.Sleep(2 * time.Second)
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { // b is claimed ahead, and given back
			time.Sleep(3 * time.Second)
			return nil
		}, rdelayedqueue.WithPrefetch(5))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, rdelayedqueue.Stats{InFlight: 2}, stats(t, q))
		require.NoError(t, stop())
		require.Equal(t, rdelayedqueue.Stats{Ready: 1}, stats(t, q))
		time.Sleep(2 * time.Minute)
		stop = consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return nil })
		time.Sleep(time.Second)
		require.NoError(t, stop())
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q), "it was handled")
	})
}

// An Ack whose second call is not answered in time is repeated: the outcome is that it was acknowledged.
func TestRepeatedAckOfAReplacedMessageSaysThatItIsDone(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		offer(t, q, "0", 0, rdelayedqueue.WithID("warm")) // the scripts are known
		require.NoError(t, take(t, q).Nack(t.Context(), time.Hour))
		offer(t, q, "", 0)
		require.NoError(t, take(t, q).Ack(t.Context()))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		m := take(t, q)
		replace(t, q, "2", time.Hour)
		p.HangReply(2) // that of the call that makes the new one due
		done := make(chan error, 1)
		go func() { done <- m.Ack(t.Context()) }()
		time.Sleep(time.Millisecond)
		p.Blackhole(true)
		err := <-done
		p.Blackhole(false)
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, m.Ack(t.Context()))
		require.NoError(t, m.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 2}, stats(t, q))
	})
}

// F25
func TestCancelThatIsRefusedEndsNoHandler(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, operator := jobs(b.Peer(t)), jobs(b.Peer(t))
		ended := false
		consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			select {
			case <-ctx.Done():
				ended = true
			case <-time.After(5 * time.Second):
			}
			return nil
		})
		time.Sleep(time.Second)
		offer(t, operator, "1", 0, rdelayedqueue.WithID("id"))
		time.Sleep(time.Second)
		require.NoError(t, b.Redis.Set(t.Context(), "redlatch_dq:{jobs}:errors", "x", 0).Err()) // HDEL is refused, as by an ACL
		_, err := operator.Cancel(t.Context(), "id")
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		time.Sleep(time.Second)
		assert.False(t, ended)
		require.NoError(t, b.Redis.Del(t.Context(), "redlatch_dq:{jobs}:errors").Err())
	})
}

// F25: an unconfirmed offer is there; this one is not.
func TestOfferUnderTheIDOfADeadLetterIsNotCalledUnconfirmed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		require.NoError(t, take(t, q).Reject(t.Context(), "no"))
		confirmed := jobs(b.Peer(t, redlatch.WithReplicas(1, 10*time.Millisecond)))
		_, err := confirmed.Offer(t.Context(), job{Name: "2"}, 0, rdelayedqueue.WithID("id"))
		assert.ErrorIs(t, err, rdelayedqueue.ErrDead)
	})
}

func TestHeadersThatAreNotTextAreNotChanged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		headers := map[string]string{"a": "\xff"}
		_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithHeaders(headers))
		if err == nil {
			assert.Equal(t, headers, take(t, q).Headers)
		} else {
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
		}
	})
}

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
			{ID: "id", Value: job{Name: "3"}, Replace: true},
			{ID: "id", Value: job{Name: "4"}, Replace: true, Delay: time.Minute},
			{ID: "x", Value: job{Name: "x"}},
			{ID: "x", Value: job{Name: "y"}, Replace: true},
			{ID: "id", Value: job{Name: "5"}},
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
		"ack": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Ack(t.Context()))
		},
		"nack": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Nack(t.Context(), 0))
		},
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
		"ack": func(t *testing.T, m *rdelayedqueue.Message[job]) { require.NoError(t, m.Ack(t.Context())) },
		"snooze": func(t *testing.T, m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Snooze(t.Context(), time.Hour))
		},
		"crash": func(*testing.T, *rdelayedqueue.Message[job]) {},
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
