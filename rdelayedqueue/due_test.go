package rdelayedqueue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F7
func TestConsumerFindsWhatADeadProducerOffered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, faulttest.StartChild(t, "producer", r.server.Addr(), "1").Wait())
	require.NoError(t, faulttest.StartChild(t, "producer", r.server.Addr(), "1500").Wait())
	q := queue(r.direct(t))
	for range 2 {
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		now, err := r.redis.Time(t.Context()).Result()
		require.NoError(t, err)
		assert.False(t, now.Before(m.DueAt), "early")
		require.NoError(t, m.Ack(t.Context()))
	}
	assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
}

// F7
func TestJobsAreNeitherLateNorEarly(t *testing.T) {
	r := newRig(t)
	lag := faulttest.MeasureLag(t, r.server.Addr())
	n := faulttest.Rounds(t, 400, 4000)
	var mu sync.Mutex
	var late []time.Duration
	done := make(chan struct{})
	for range 3 {
		consume(t, queue(r.direct(t)), func(_ context.Context, m *rdelayedqueue.Message[job]) error {
			lateness := time.Since(m.DueAt) // server and test share a clock
			mu.Lock()
			defer mu.Unlock()
			if late = append(late, lateness); len(late) == n {
				close(done)
			}
			return nil
		}, rdelayedqueue.WithConcurrency(8))
	}
	producer := queue(r.direct(t))
	for range n {
		_, err := producer.Offer(t.Context(), job{}, rand.N(2*time.Second))
		require.NoError(t, err)
	}
	<-done
	slices.Sort(late)
	t.Logf("lateness: p50 %v, p99 %v, max %v", late[n/2], late[n*99/100], late[n-1])
	assert.GreaterOrEqual(t, late[0], time.Duration(0), "early")
	assert.Less(t, late[n*99/100], 50*time.Millisecond+4*lag.Worst())
}

// F7
func TestManyDueAtOnceDrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := faulttest.Rounds(t, 5000, 100_000)
	q := queue(r.direct(t))
	_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], n))
	require.NoError(t, err)
	var handled atomic.Int64
	done := make(chan struct{})
	stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
		if handled.Add(1) == int64(n) {
			close(done)
		}
		return nil
	}, rdelayedqueue.WithConcurrency(32))
	<-done
	require.NoError(t, stop())
	assert.EqualValues(t, n, handled.Load())
	assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
}

// F7
func TestOutageDelaysNothingForLonger(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		producer := jobs(b.Peer(t))
		handled := make(chan time.Time, 10)
		consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error {
			handled <- time.Now()
			return nil
		})
		time.Sleep(time.Second)
		p.Blackhole(true)
		offer(t, producer, "in the outage", 0)
		time.Sleep(time.Minute)
		assert.Empty(t, handled)
		p.Blackhole(false)
		back := time.Now()
		assert.WithinDuration(t, back, <-handled, 5*time.Second)
		time.Sleep(time.Minute)

		p.Cut() // the subscription is lost, and nobody hears of the next offer
		start := time.Now()
		offer(t, producer, "after the cut", 0)
		assert.WithinDuration(t, start, <-handled, 15*time.Second, "the safety check at the latest")
		synctest.Wait()
	})
}

// F7: nobody relies on a client to look in for a message that it has had before that was due.
func TestMessageAfterOneThatWasTakenBeforeItsTimeIsNotLate(t *testing.T) {
	for name, sooner := range map[string]func(t *testing.T, q *rdelayedqueue.Queue[job]){
		"rescheduled": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			t.Helper()
			ok, err := q.Reschedule(t.Context(), "a", 0)
			require.NoError(t, err)
			require.True(t, ok)
		},
		"cancelled, and another one came": func(t *testing.T, q *rdelayedqueue.Queue[job]) {
			t.Helper()
			cancelA(t, q)
			offer(t, q, "b", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t))
				handled := make(chan time.Time, 10)
				consume(t, q, noting(handled))
				time.Sleep(time.Second)
				offer(t, q, "a", 5*time.Second, rdelayedqueue.WithID("a"))
				time.Sleep(time.Second)
				sooner(t, q)
				<-handled
				time.Sleep(time.Second) // until the consumer waits again
				start := time.Now()
				offer(t, q, "later", 4*time.Second)
				assert.WithinDuration(t, start.Add(4*time.Second), <-handled, time.Second/10)
			})
		})
	}
}

// noting returns a handler that notes when it is called.
func noting(handled chan<- time.Time) handler {
	return func(context.Context, *rdelayedqueue.Message[job]) error {
		handled <- time.Now()
		return nil
	}
}

// F7: of three consumers that wait, one is to look in and another one is its spare. Nobody relies on those that leave.
func TestConsumersThatLeaveMakeNothingLate(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, q *rdelayedqueue.Queue[job], first *locktest.Peer, stopFirst, stopSpare func() error){
		"all that were to look in, after a Cancel": func(t *testing.T, q *rdelayedqueue.Queue[job], _ *locktest.Peer, stopFirst, stopSpare func() error) {
			t.Helper()
			cancelA(t, q)
			require.NoError(t, stopSpare())
			require.NoError(t, stopFirst())
			time.Sleep(time.Second / 2)                 // until Redis has heard of it
			offer(t, q, "later", 3200*time.Millisecond) // after the other one was due
		},
		"the spare, and then the first one dies": func(t *testing.T, _ *rdelayedqueue.Queue[job], first *locktest.Peer, _, stopSpare func() error) {
			t.Helper()
			require.NoError(t, stopSpare())
			time.Sleep(time.Second / 10) // until there is another one
			first.Down(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				handled := make(chan time.Time, 10)
				consume(t, jobs(b.Peer(t)), noting(handled))
				time.Sleep(time.Second / 10)
				stopSpare := consume(t, jobs(b.Peer(t)), noting(handled))
				time.Sleep(time.Second / 10)
				first := b.Peer(t)
				stopFirst := consume(t, jobs(first), noting(handled)) // the one that came last is the first to be asked
				time.Sleep(time.Second)
				q := jobs(b.Peer(t))
				start := time.Now()
				offer(t, q, "a", 4*time.Second, rdelayedqueue.WithID("a"))
				time.Sleep(time.Second / 2)
				leave(t, q, first, stopFirst, stopSpare)
				assert.WithinDuration(t, start.Add(4*time.Second), <-handled, time.Second/2)
			})
		})
	}
}

// F7: a spare that looked in for other messages meanwhile is not taken for one that still sleeps until its time.
func TestSpareThatWasWokenBeforeItsTimeStaysSpare(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		handled := make(chan time.Time, 10)
		consume(t, jobs(b.Peer(t)), func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			defer time.Sleep(time.Second / 5) // so that it waits again after the first one
			return noting(handled)(ctx, m)
		})
		time.Sleep(time.Second / 10)
		first := b.Peer(t)
		consume(t, jobs(first), noting(handled))
		time.Sleep(time.Second)
		q := jobs(b.Peer(t))
		start := time.Now()
		offer(t, q, "a", 4*time.Second)
		time.Sleep(time.Second / 2)
		offer(t, q, "wakes the first one", 0)
		offer(t, q, "wakes its spare", 0)
		<-handled
		<-handled
		time.Sleep(time.Second / 2)
		first.Down(true)
		assert.WithinDuration(t, start.Add(4*time.Second), <-handled, time.Second/2)
	})
}

// F7: one that is to look in dies, while nothing is due or only what is due much later. It has no spare, since the other consumer works.
func TestDeathWhileTheOthersWorkMakesNothingLate(t *testing.T) {
	for name, delays := range map[string][]time.Duration{
		"nothing is due":     nil,
		"another one is due": {time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				handled := make(chan time.Time, 10)
				working := func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
					defer time.Sleep(1500 * time.Millisecond)
					return noting(handled)(ctx, m)
				}
				visibility := rdelayedqueue.WithVisibility(5 * time.Second)
				first := b.Peer(t)
				consume(t, jobs(first), working, visibility)
				time.Sleep(time.Second / 10)
				consume(t, jobs(b.Peer(t)), working, visibility)
				time.Sleep(time.Second)
				q := jobs(b.Peer(t))
				for _, d := range delays {
					offer(t, q, "much later", d)
				}
				offer(t, q, "a", 0)
				<-handled // by the second one; the first one is to look in when its visibility is over
				time.Sleep(time.Second)
				first.Down(true)
				time.Sleep(time.Second)
				start := time.Now()
				offer(t, q, "b", 3500*time.Millisecond)
				assert.WithinDuration(t, start.Add(3500*time.Millisecond), <-handled, time.Second/2)
			})
		})
	}
}

// F7: one that is to look in freezes, and its spare finds work: it is not asked again.
func TestFrozenConsumerIsNotAskedAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		handled := make(chan time.Time, 10)
		working := func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			defer time.Sleep(5 * time.Second)
			return noting(handled)(ctx, m)
		}
		var last *locktest.Peer
		for range 3 {
			last = b.Peer(t)
			consume(t, jobs(last), working)
			time.Sleep(time.Second / 10)
		}
		q := jobs(b.Peer(t))
		start := time.Now()
		offer(t, q, "a", 5*time.Second)
		offer(t, q, "b", 6*time.Second)
		time.Sleep(4 * time.Second)
		last.Blackhole(true)
		assert.WithinDuration(t, start.Add(5*time.Second), <-handled, time.Second/2)
		assert.WithinDuration(t, start.Add(6*time.Second), <-handled, time.Second/2)
		last.Blackhole(false)
	})
}

// F7: while consumers come, go and die, and messages come, move and go, one that waits finds each message when it is due; or 300 ms
// later, if the one that was to look in has died.
func TestNoMessageIsLateWhileConsumersComeAndGo(t *testing.T) {
	for seed := range faulttest.Rounds(t, 4, 300) {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a seed has the same operations each time
			upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
			limit := 10 * time.Millisecond
			var bound atomic.Int64
			bound.Store(int64(limit))
			var handling time.Duration // of one that handles many at a time
			handle := func(_ context.Context, m *rdelayedqueue.Message[job]) error {
				assert.WithinDuration(t, m.DueAt, time.Now(), time.Duration(bound.Load()), "seed %d, attempt %d", seed, m.Attempt)
				time.Sleep(handling)
				if m.Attempt == 1 && rand.N(4) == 0 {
					return errors.New("again")
				}
				return nil
			}
			options := []rdelayedqueue.ConsumeOption{rdelayedqueue.WithVisibility(5 * time.Second)}
			if random.IntN(2) == 0 {
				handling = upTo(time.Second / 2)
				options = append(options, rdelayedqueue.WithConcurrency(50))
			}
			consumer := func() (p *locktest.Peer, stop func() error) {
				p = b.Peer(t)
				return p, consume(t, jobs(p), handle, options...)
			}
			producer := jobs(b.Peer(t))
			var ids []string
			operate := func() {
				time.Sleep(upTo(time.Second))
				some := func() string { return ids[random.IntN(len(ids))] }
				switch random.IntN(4) {
				case 0:
					if len(ids) > 0 {
						_, err := producer.Reschedule(t.Context(), some(), upTo(8*time.Second))
						require.NoError(t, err)
					}
				case 1:
					if len(ids) > 0 {
						_, err := producer.Cancel(t.Context(), some())
						require.NoError(t, err)
					}
				default:
					ids = append(ids, offer(t, producer, "job", upTo(8*time.Second)))
				}
			}
			for range 1 + random.IntN(2) {
				consumer() // one that stays
			}
			var stops []func() error
			for range 60 {
				operate()
				switch random.IntN(8) {
				case 0, 1:
					_, stop := consumer()
					stops = append(stops, stop)
				case 2, 3:
					if len(stops) > 0 {
						require.NoError(t, stops[0]())
						stops = stops[1:]
					}
				case 4:
					last, stop := consumer() // the one that is asked first
					operate()
					time.Sleep(time.Millisecond) // until what it was told has a spare
					bound.Store(int64(limit + 300*time.Millisecond))
					last.Down(true)
					for range 20 { // after 10 s another one has looked in
						operate()
					}
					bound.Store(int64(limit))
					go func() { _ = stop() }() // it waits for an answer
				}
			}
			time.Sleep(time.Minute)
			assert.Equal(t, rdelayedqueue.Stats{}, stats(t, producer))
		})
	}
}
