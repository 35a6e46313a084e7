package rdelayedqueue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

type job struct {
	Name string
	N    int
}

func jobs(p *locktest.Peer, opts ...rdelayedqueue.QueueOption) *rdelayedqueue.Queue[job] {
	return redlatch.GetDelayedQueue[job](p.Client, "jobs", opts...)
}

func offer(t *testing.T, q *rdelayedqueue.Queue[job], name string, delay time.Duration, opts ...rdelayedqueue.OfferOption) string {
	t.Helper()
	id, err := q.Offer(t.Context(), job{Name: name}, delay, opts...)
	require.NoError(t, err)
	return id
}

func take(t *testing.T, q *rdelayedqueue.Queue[job]) *rdelayedqueue.Message[job] {
	t.Helper()
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	return m
}

// nothing fails the test if a message is due now.
func nothing(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	m, err := q.Take(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "%+v", m)
}

func stats(t *testing.T, q *rdelayedqueue.Queue[job]) rdelayedqueue.Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	s.Oldest = 0 // it changes with the time
	return s
}

// list returns all messages of a state.
func list(t *testing.T, q *rdelayedqueue.Queue[job], s rdelayedqueue.State) (all []rdelayedqueue.Entry[job]) {
	t.Helper()
	for e, err := range q.All(t.Context(), s) {
		require.NoError(t, err)
		all = append(all, e)
	}
	return all
}

func TestMessageIsDeliveredWhenItIsDueAndGoneAfterAck(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		start := time.Now()
		id := offer(t, q, "a", 3*time.Second)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
		m := take(t, q)
		lateness := time.Since(start) - 3*time.Second
		assert.GreaterOrEqual(t, lateness, time.Duration(0), "early")
		assert.Less(t, lateness, 2*time.Millisecond)
		assert.Equal(t, job{Name: "a"}, m.Value)
		assert.Equal(t, id, m.ID)
		assert.Equal(t, 1, m.Attempt)
		assert.WithinDuration(t, start.Add(3*time.Second), m.DueAt, time.Millisecond)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, q))
		require.NoError(t, m.Context().Err())
		require.NoError(t, m.Ack(t.Context()))
		assert.ErrorIs(t, context.Cause(m.Context()), rdelayedqueue.ErrFinished)
		assert.NoError(t, m.Ack(t.Context()), "a second Ack")
		assert.ErrorIs(t, m.Nack(t.Context(), 0), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestOrderIsDueTimeThenOffering(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "late", 2*time.Second)
		items := []rdelayedqueue.Item[job]{}
		for i := range 250 {
			items = append(items, rdelayedqueue.Item[job]{Value: job{N: i}, Delay: time.Second})
		}
		ids, err := q.OfferBatch(t.Context(), items)
		require.NoError(t, err)
		require.Len(t, ids, 250)
		offer(t, q, "first", 0)
		time.Sleep(time.Second)
		offer(t, q, "last", time.Second) // due with "late", offered after it
		time.Sleep(2 * time.Second)
		assert.Equal(t, "first", take(t, q).Value.Name)
		for n := 0; n < 250; {
			batch, err := q.TakeBatch(t.Context(), 97)
			require.NoError(t, err)
			for _, m := range batch {
				if n < 250 {
					require.Equal(t, n, m.Value.N)
				}
				n++
			}
			if n > 250 {
				return
			}
		}
		assert.Equal(t, "late", take(t, q).Value.Name)
		assert.Equal(t, "last", take(t, q).Value.Name)
	})
}

func TestSleepingConsumerIsWokenByAnEarlierOffer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		producer, q := jobs(b.Peer(t)), jobs(b.Peer(t))
		offer(t, producer, "later", time.Hour)
		start := time.Now()
		got := make(chan time.Duration, 1)
		go func() {
			take(t, q)
			got <- time.Since(start)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		offer(t, producer, "now", 0)
		assert.Less(t, <-got, time.Minute+2*time.Millisecond)
	})
}

func TestTwoDelaysInBothOrders(t *testing.T) {
	for _, delays := range [][2]time.Duration{{3 * time.Second, 50 * time.Second}, {50 * time.Second, 3 * time.Second}} {
		t.Run(fmt.Sprint(delays), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				producer, q := jobs(b.Peer(t)), jobs(b.Peer(t))
				got := make(chan time.Time, 2)
				go func() {
					for range 2 {
						if m, err := q.Take(t.Context()); assert.NoError(t, err) {
							taken := time.Now()
							assert.NoError(t, m.Ack(t.Context()))
							got <- taken // last, as the test closes the client then
						}
					}
				}()
				time.Sleep(20 * time.Second)
				start := time.Now()
				for _, d := range delays {
					offer(t, producer, "x", d)
				}
				assert.WithinDuration(t, start.Add(3*time.Second), <-got, 2*time.Millisecond)
				assert.WithinDuration(t, start.Add(50*time.Second), <-got, 2*time.Millisecond)
			})
		})
	}
}

func TestUnfinishedMessageComesBackAfterItsVisibility(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, other := jobs(b.Peer(t)), jobs(b.Peer(t))
		offer(t, q, "a", 0)
		start := time.Now()
		m := take(t, q)
		again := take(t, other)
		assert.WithinDuration(t, start.Add(30*time.Second), time.Now(), 2*time.Millisecond)
		assert.Equal(t, 2, again.Attempt)
		<-m.Context().Done()
		assert.ErrorIs(t, context.Cause(m.Context()), rdelayedqueue.ErrLost)
		assert.ErrorIs(t, m.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		assert.ErrorIs(t, m.Extend(t.Context(), time.Second), rdelayedqueue.ErrNotHeld)
		require.NoError(t, again.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestLateAckCountsUntilSomebodyElseClaims(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "a", 0)
		m := take(t, q)
		time.Sleep(time.Minute)
		assert.ErrorIs(t, context.Cause(m.Context()), rdelayedqueue.ErrLost)
		assert.Equal(t, 1, stats(t, q).Ready)
		assert.NoError(t, m.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestExtendKeepsTheClaim(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "a", 0)
		m := take(t, q)
		time.Sleep(20 * time.Second)
		require.NoError(t, m.Extend(t.Context(), time.Minute))
		time.Sleep(59 * time.Second)
		assert.NoError(t, m.Context().Err())
		nothing(t, q)
		time.Sleep(2 * time.Second)
		assert.ErrorIs(t, context.Cause(m.Context()), rdelayedqueue.ErrLost)
		assert.Equal(t, 2, take(t, q).Attempt)
	})
}

func TestNackAndRejectEndAnAttempt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(2))
		id := offer(t, q, "a", 0)
		m := take(t, q)
		require.NoError(t, m.Nack(t.Context(), time.Minute))
		assert.ErrorIs(t, m.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		nothing(t, q)
		start := time.Now()
		m = take(t, q)
		assert.WithinDuration(t, start.Add(time.Minute), time.Now(), 5*time.Millisecond)
		assert.Equal(t, 2, m.Attempt)
		require.NoError(t, m.Nack(t.Context(), 0), "the last attempt")
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))

		other := offer(t, q, "b", 0)
		require.NoError(t, take(t, q).Reject(t.Context(), "no such order"))
		dead, err := q.Dead(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, dead, 2)
		assert.Equal(t, []string{id, other}, []string{dead[0].ID, dead[1].ID})
		assert.Equal(t, "no such order", dead[1].Error)
		assert.Equal(t, job{Name: "b"}, dead[1].Value)
		assert.Equal(t, 1, dead[1].Attempt)
	})
}

func TestMessageWithoutAttemptsLeftIsDead(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(2), rdelayedqueue.WithVisibility(time.Second))
		offer(t, q, "a", 0)
		take(t, q)
		last := take(t, q)
		time.Sleep(2 * time.Second)
		nothing(t, q)
		dead, err := q.Dead(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		assert.NotEmpty(t, dead[0].Error)
		assert.NoError(t, last.Ack(t.Context()), "nobody else has claimed it")
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestRedriveBeginsAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for i := range 230 {
			offer(t, q, fmt.Sprint(i), 0, rdelayedqueue.WithID(fmt.Sprint(i)))
		}
		for range 230 {
			require.NoError(t, take(t, q).Reject(t.Context(), "x"))
		}
		ok, err := q.Redrive(t.Context(), "7")
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = q.Redrive(t.Context(), "7")
		require.NoError(t, err)
		assert.False(t, ok)
		m := take(t, q)
		assert.Equal(t, "7", m.ID)
		assert.Equal(t, 1, m.Attempt)
		n, err := q.RedriveAll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 229, n)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 229, InFlight: 1}, stats(t, q))
	})
}

func TestPurgeRemovesDeadLettersOrWhatItIsTold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "dead", 0)
		require.NoError(t, take(t, q).Reject(t.Context(), "x"))
		offer(t, q, "flight", 0)
		m := take(t, q)
		offer(t, q, "ready", 0)
		offer(t, q, "delayed", time.Hour)
		n, err := q.Purge(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Ready: 1, InFlight: 1}, stats(t, q))
		n, err = q.Purge(t.Context(), rdelayedqueue.Delayed, rdelayedqueue.Ready, rdelayedqueue.InFlight, rdelayedqueue.Dead)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
		assert.ErrorIs(t, m.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestIDsAreTakenWhileTheyShouldBe(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		add := func() rdelayedqueue.Outcome {
			id, outcome, err := q.OfferNew(t.Context(), job{Name: "x"}, 0, rdelayedqueue.WithID("order-1"))
			require.NoError(t, err)
			require.Equal(t, "order-1", id)
			return outcome
		}
		assert.Equal(t, rdelayedqueue.Added, add())
		assert.Equal(t, rdelayedqueue.Kept, add(), "it waits")
		m := take(t, q)
		assert.Equal(t, rdelayedqueue.Kept, add(), "it is in flight")
		require.NoError(t, m.Reject(t.Context(), "x"))
		_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID("order-1"))
		require.ErrorIs(t, err, rdelayedqueue.ErrDead)
		ok, err := q.Cancel(t.Context(), "order-1")
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, rdelayedqueue.Added, add(), "it was cancelled")
		require.NoError(t, take(t, q).Ack(t.Context()))
		time.Sleep(10*time.Minute - time.Second)
		assert.Equal(t, rdelayedqueue.Kept, add(), "it was done not long ago")
		time.Sleep(2 * time.Second)
		assert.Equal(t, rdelayedqueue.Added, add(), "it was done long ago")
	})
}

func TestCancelAndRescheduleWhatWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		id := offer(t, q, "a", time.Hour)
		ok, err := q.Reschedule(t.Context(), id, time.Second)
		require.NoError(t, err)
		assert.True(t, ok)
		m := take(t, q)
		for _, id := range []string{id, "unknown"} {
			ok, err = q.Reschedule(t.Context(), id, time.Second)
			require.NoError(t, err)
			assert.False(t, ok, id)
		}
		ok, err = q.Cancel(t.Context(), "unknown")
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, m.Nack(t.Context(), time.Hour))
		ok, err = q.Cancel(t.Context(), id)
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = q.Get(t.Context(), id)
		assert.ErrorIs(t, err, rdelayedqueue.ErrNotFound)
	})
}

func TestGetAndListShowEachState(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		flight := offer(t, q, "flight", 0)
		m := take(t, q)
		delayed := offer(t, q, "delayed", time.Hour)
		ready := offer(t, q, "ready", 0)
		time.Sleep(time.Millisecond)
		for id, want := range map[string]rdelayedqueue.State{
			flight: rdelayedqueue.InFlight, delayed: rdelayedqueue.Delayed, ready: rdelayedqueue.Ready,
		} {
			e, err := q.Get(t.Context(), id)
			require.NoError(t, err)
			require.NotNil(t, e)
			assert.Equal(t, want, e.State, want)
			assert.Equal(t, want.String(), map[bool]string{true: "in flight", false: e.Value.Name}[want == rdelayedqueue.InFlight])
			assert.Equal(t, []rdelayedqueue.Entry[job]{*e}, list(t, q, want))
		}
		require.NoError(t, m.Ack(t.Context()))
	})
}

func TestAllListsEachOnceInItsOrder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		items := make([]rdelayedqueue.Item[job], 330)
		for i := range items {
			items[i] = rdelayedqueue.Item[job]{Value: job{N: i}, Delay: time.Hour}
		}
		_, err := q.OfferBatch(t.Context(), items)
		require.NoError(t, err)
		require.Empty(t, list(t, q, rdelayedqueue.Dead)) // the server knows the scripts
		_, err = q.Cancel(t.Context(), "none")
		require.NoError(t, err)
		n, before := 0, len(p.Sent())
		for e, err := range q.All(t.Context(), rdelayedqueue.Delayed) {
			require.NoError(t, err)
			require.Equal(t, n, e.Value.N)
			n++
		}
		assert.Equal(t, 330, n)
		assert.Len(t, p.Sent()[before:], 4, "a call for each 100")
		before = len(p.Sent())
		for e, err := range q.All(t.Context(), rdelayedqueue.Delayed) {
			require.NoError(t, err)
			ok, err := q.Cancel(t.Context(), e.ID) // while it goes on
			require.NoError(t, err)
			require.True(t, ok)
			if e.Value.N == 149 {
				break
			}
		}
		assert.Len(t, p.Sent()[before:], 2+150, "what nobody asks for is not read")
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 180}, stats(t, q))
	})
}

func TestAllEndsWithItsError(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 150))
		require.NoError(t, err)
		n, failed := 0, error(nil)
		for _, err := range q.All(t.Context(), rdelayedqueue.Ready) {
			if err != nil {
				require.NoError(t, failed, "once")
				failed = err
				continue
			}
			if n++; n == 100 {
				p.Refuse(true)
				p.Cut()
			}
		}
		assert.Equal(t, 100, n)
		require.ErrorIs(t, failed, redlatch.ErrUnavailable)
		require.ErrorContains(t, failed, `rdelayedqueue: list "`)
		p.Refuse(false)
	})
}

func TestOldestIsForHowLongTheNextMessageHasBeenDue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithVisibility(time.Minute))
		oldest := func() time.Duration {
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			return s.Oldest.Round(10 * time.Millisecond)
		}
		assert.Zero(t, oldest())
		offer(t, q, "b", 20*time.Second)
		offer(t, q, "a", 10*time.Second)
		assert.Zero(t, oldest(), "they are delayed")
		time.Sleep(30 * time.Second)
		assert.Equal(t, 20*time.Second, oldest())
		take(t, q)
		assert.Equal(t, 10*time.Second, oldest(), "the first one is in flight")
		take(t, q)
		assert.Zero(t, oldest())
		time.Sleep(70 * time.Second)
		assert.Equal(t, 10*time.Second, oldest(), "the claims ran out")
		offer(t, q, "c", 0)
		assert.Equal(t, 10*time.Second, oldest(), "they come before a message that was offered later")
	})
}

func TestUndecodablePayloadIsDeadAndTheQueueGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		text := redlatch.GetDelayedQueue[string](p.Client, "jobs")
		_, err := text.Offer(t.Context(), "no job", 0)
		require.NoError(t, err)
		q := jobs(p)
		offer(t, q, "a", 0)
		assert.Equal(t, "a", take(t, q).Value.Name)
		dead, err := q.Dead(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		assert.Contains(t, dead[0].Error, "codec.MsgPack")
		assert.Equal(t, "\xa6no job", string(dead[0].Raw))
	})
}

func TestOfferAtIsDueAtThatTimeOfRedis(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for _, past := range []time.Time{{}, time.Now().Add(-time.Hour)} {
			start := time.Now()
			_, err := q.OfferAt(t.Context(), job{}, past)
			require.NoError(t, err)
			m := take(t, q)
			assert.WithinDuration(t, start, m.DueAt, time.Millisecond, "at once")
			require.NoError(t, m.Ack(t.Context()))
		}
		noon := time.Now().Add(time.Hour).Truncate(time.Minute)
		_, err := q.OfferAt(t.Context(), job{}, noon, rdelayedqueue.WithID("a"))
		require.NoError(t, err)
		m := take(t, q)
		assert.Equal(t, "a", m.ID)
		assert.True(t, m.DueAt.Equal(noon), "%v", m.DueAt)
		assert.WithinDuration(t, noon, time.Now(), 2*time.Millisecond)
	})
}

func TestErrorsAreThoseOfLocks(t *testing.T) {
	assert.Equal(t, rlock.ErrNotHeld, rdelayedqueue.ErrNotHeld)
	assert.Equal(t, rlock.ErrLost, rdelayedqueue.ErrLost)
}
