package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestFullQueueRefusesOffers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(3))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		offer(t, q, "2", time.Hour)
		m := take(t, q)
		offer(t, q, "3", 0)
		start := time.Now()
		_, outcome, err := q.OfferNew(t.Context(), job{}, 0)
		require.ErrorIs(t, err, rdelayedqueue.ErrFull)
		assert.Zero(t, outcome)
		assert.Less(t, time.Since(start), 100*time.Millisecond)
		assert.Equal(t, rdelayedqueue.Kept, keep(t, q), "what changes nothing is not refused")
		assert.Equal(t, rdelayedqueue.Replaced, replace(t, q, "4", 0), "nor what takes the place of another")
		require.NoError(t, m.Ack(t.Context()))
		_, err = q.Offer(t.Context(), job{}, 0)
		require.ErrorIs(t, err, rdelayedqueue.ErrFull, "its replacement has its place")
	})
}

// F5: whatever makes room wakes an offer that waits for it.
func TestWhatMakesRoomWakesAWaitingOffer(t *testing.T) {
	for name, free := range map[string]func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]){
		"ack": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Ack(t.Context()))
		},
		"reject": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Reject(t.Context(), ""))
		},
		"last attempt": func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			require.NoError(t, m.Nack(t.Context(), 0))
		},
		"cancel": func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			ok, err := q.Cancel(t.Context(), m.ID)
			require.NoError(t, err)
			require.True(t, ok)
		},
		"purge": func(t *testing.T, q *rdelayedqueue.Queue[job], _ *rdelayedqueue.Message[job]) {
			n, err := q.Purge(t.Context(), rdelayedqueue.InFlight)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		},
		"death of its process": func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
			<-m.Context().Done()
			time.Sleep(time.Second)
			require.NoError(t, take(t, q).Snooze(t.Context(), 0)) // the one that got its place
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				consumers := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(1)) // who do not know of the capacity
				q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(1), rdelayedqueue.WithWait(time.Minute))
				offer(t, q, "1", 0)
				m := take(t, consumers)
				var added time.Time
				done := make(chan error, 1)
				go func() {
					_, err := q.Offer(t.Context(), job{Name: "2"}, 0)
					added = time.Now()
					done <- err
				}()
				time.Sleep(5 * time.Second)
				free(t, consumers, m)
				freed := time.Now()
				require.NoError(t, <-done)
				assert.Less(t, added.Sub(freed), 50*time.Millisecond)
				assert.Equal(t, "2", take(t, consumers).Value.Name)
			})
		})
	}
}

func TestOfferWaitsForRoomAsLongAsItIsTold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithCapacity(1), rdelayedqueue.WithWait(time.Minute))
		offer(t, q, "1", 0)
		start := time.Now()
		_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithWait(20*time.Second))
		require.ErrorIs(t, err, rdelayedqueue.ErrFull)
		assert.InDelta(t, 20, time.Since(start).Seconds(), 0.1)

		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = q.Offer(ctx, job{}, 0)
		require.ErrorIs(t, err, rdelayedqueue.ErrFull)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 5, time.Since(start).Seconds(), 0.1)

		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := q.Offer(t.Context(), job{}, 0)
				done <- err
			}()
		}
		time.Sleep(time.Second)
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-done, redlatch.ErrClosed)
		require.ErrorIs(t, <-done, redlatch.ErrClosed)
	})
}

func TestBatchIsTakenWholeOrNot(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithCapacity(3))
		_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 4))
		require.ErrorIs(t, err, rdelayedqueue.ErrFull)
		assert.Empty(t, p.Sent(), "it never fits")
		offer(t, q, "1", 0)
		_, err = q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 3))
		require.ErrorIs(t, err, rdelayedqueue.ErrFull)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 1}, counts(t, q))
		_, err = q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 2))
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 3}, counts(t, q))
	})
}

// counts returns the numbers of messages.
func counts(t *testing.T, q *rdelayedqueue.Queue[job]) rdelayedqueue.Stats {
	t.Helper()
	s := stats(t, q)
	return rdelayedqueue.Stats{Delayed: s.Delayed, Ready: s.Ready, InFlight: s.InFlight, Dead: s.Dead}
}

func TestLargeBatchFollowsTheConsumers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(120), rdelayedqueue.WithWait(time.Hour))
		var handled atomic.Int64
		consume(t, jobs(b.Peer(t)), func(context.Context, *rdelayedqueue.Message[job]) error {
			handled.Add(1)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 450))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, handled.Load(), int64(450-120))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 450, handled.Load())
	})
}

// F21: a batch that waits is not sent again for each place of the many that it needs.
func TestBatchIsOfferedAgainWhenThereMayBeRoomForAllOfIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, consumers := jobs(p, rdelayedqueue.WithCapacity(60), rdelayedqueue.WithWait(time.Minute)), jobs(b.Peer(t))
		offerMany(t, q, 50)
		done := make(chan error, 1)
		go func() {
			_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 50))
			done <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		before := p.Scripts()
		for range 40 {
			require.Empty(t, done)
			require.NoError(t, take(t, consumers).Ack(t.Context()))
			synctest.Wait()
		}
		require.Len(t, done, 1, "it waits for no more")
		require.NoError(t, <-done)
		assert.Equal(t, before+1, p.Scripts())
	})
}

func TestPartsOfABatchThatWaitKeepTheirOrder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(150), rdelayedqueue.WithWait(time.Hour))
		var order []int
		consume(t, jobs(b.Peer(t)), func(_ context.Context, m *rdelayedqueue.Message[job]) error {
			order = append(order, m.Value.N)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		items := make([]rdelayedqueue.Item[job], 250) // of which the last 50 would fit before the 100 ahead of them
		for i := range items {
			items[i].Value.N = i
		}
		_, err := q.OfferBatch(t.Context(), items)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, order, 250)
		assert.IsIncreasing(t, order)
	})
}

// F25: what the first part came to is not forgotten while the second one waits.
func TestBatchThatWaitedForRoomNamesItsDeadLetters(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithCapacity(100), rdelayedqueue.WithWait(time.Hour))
		offer(t, q, "", 0, rdelayedqueue.WithID("dead"))
		require.NoError(t, take(t, q).Reject(t.Context(), "no"))
		offer(t, q, "", 0)
		m := take(t, q)
		items := make([]rdelayedqueue.Item[job], 101)
		items[0].ID = "dead"
		done := make(chan error, 1)
		go func() {
			_, err := q.OfferBatch(t.Context(), items)
			done <- err
		}()
		time.Sleep(time.Second)
		require.NoError(t, m.Ack(t.Context()))
		err := <-done
		require.ErrorIs(t, err, rdelayedqueue.ErrDead)
		assert.ErrorContains(t, err, `["dead"]`)
	})
}

// F1, F5: producers of several clients never exceed the capacity together, and each of them gets its place although replies are lost.
func TestRacingProducersNeverExceedTheCapacity(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const capacity, producers, each = 7, 12, 10
		var mu sync.Mutex
		handled := map[string]int{}
		watch := jobs(b.Peer(t))
		consume(t, jobs(b.Peer(t)), func(_ context.Context, m *rdelayedqueue.Message[job]) error {
			s := stats(t, watch)
			assert.LessOrEqual(t, s.Delayed+s.Ready+s.InFlight, capacity)
			mu.Lock()
			defer mu.Unlock()
			handled[m.Value.Name]++
			if m.Attempt == 1 && m.Value.N%3 == 0 {
				return errors.New("again")
			}
			return nil
		}, rdelayedqueue.WithConcurrency(3))
		var all sync.WaitGroup
		for range 3 {
			p := b.Peer(t)
			q := jobs(p, rdelayedqueue.WithCapacity(capacity), rdelayedqueue.WithWait(time.Hour))
			for n := range producers {
				all.Go(func() {
					for i := range each {
						if i == 5 {
							p.LoseReplies(1)
						}
						_, err := q.Offer(t.Context(), job{Name: fmt.Sprintf("%p-%d-%d", q, n, i), N: i}, time.Duration(i)*time.Millisecond)
						assert.NoError(t, err)
					}
				})
			}
		}
		all.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, handled, 3*producers*each)
		assert.Equal(t, rdelayedqueue.Stats{}, counts(t, watch))
	})
}

// keep offers under an id that is taken, and returns what became of it.
func keep(t *testing.T, q *rdelayedqueue.Queue[job]) rdelayedqueue.Outcome {
	t.Helper()
	_, outcome, err := q.OfferNew(t.Context(), job{}, 0, rdelayedqueue.WithID("id"))
	require.NoError(t, err)
	return outcome
}
