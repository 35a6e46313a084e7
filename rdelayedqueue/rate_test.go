package rdelayedqueue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rratelimiter"
)

// offerMany offers n messages that are due at once.
func offerMany(t *testing.T, q *rdelayedqueue.Queue[job], n int) {
	t.Helper()
	_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], n))
	require.NoError(t, err)
}

// begun collects the times at which n handlers begin.
type begun chan time.Time

func (b begun) handle(context.Context, *rdelayedqueue.Message[job]) error {
	b <- time.Now()
	return nil
}

func (b begun) collect(n int) (at []time.Time) {
	for range n {
		at = append(at, <-b)
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// checkRate fails the test if more than n messages and what comes back since had begun at any time.
func checkRate(t *testing.T, at []time.Time, n int, period time.Duration) {
	t.Helper()
	for i := range at {
		most := n + int(at[i].Sub(at[0])*time.Duration(n)/period)
		require.LessOrEqual(t, i+1, most, "after %v", at[i].Sub(at[0]))
	}
}

func TestTwoClientsTogetherKeepToTheRateAndReachIt(t *testing.T) {
	for _, rate := range []struct {
		n      int
		period time.Duration
	}{{100, time.Second}, {3, 100 * time.Millisecond}, {1, 10 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d in %v", rate.n, rate.period), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const messages = 300
				started := make(begun, messages)
				per := rdelayedqueue.WithRate(rratelimiter.Per(rate.n, rate.period))
				for range 2 {
					consume(t, jobs(b.Peer(t), per), started.handle, rdelayedqueue.WithConcurrency(8))
				}
				offerMany(t, jobs(b.Peer(t)), messages)
				at := started.collect(messages)
				checkRate(t, at, rate.n, rate.period)
				want := time.Duration(messages-rate.n) * rate.period / time.Duration(rate.n)
				assert.InDelta(t, want.Seconds(), at[messages-1].Sub(at[0]).Seconds(), 0.02*want.Seconds(), "the rate is reached")
			})
		})
	}
}

func TestRateIsKeptToTheMicrosecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const n, period = 150, time.Hour + 7*time.Microsecond
		started := make(begun, 200)
		consume(t, jobs(b.Peer(t), rdelayedqueue.WithRate(rratelimiter.Per(n, period))), started.handle)
		offerMany(t, jobs(b.Peer(t)), n+20)
		checkRate(t, started.collect(n+20), n, period)
	})
}

// F2
func TestLostRepliesDoNotExceedTheRate(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		started := make(begun, 300)
		p := b.Peer(t)
		consume(t, jobs(p), started.handle, rdelayedqueue.WithConcurrency(8), rdelayedqueue.WithRate(rratelimiter.Per(20, time.Second)))
		offerMany(t, jobs(b.Peer(t)), 200)
		var at []time.Time
		for range 10 {
			at = append(at, started.collect(20)...)
			p.LoseReplies(1)
		}
		checkRate(t, at, 20, time.Second)
	})
}

// F7
func TestRateIsReachedAlsoIfTheAlarmDies(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &idle{handled: make(chan time.Time, 10)}
		per := rdelayedqueue.WithRate(rratelimiter.Per(1, 5*time.Second))
		for range 2 {
			p := b.Peer(t, redlatch.WithCloseGrace(0))
			s.peers = append(s.peers, p)
			consume(t, jobs(p, per), begun(s.handled).handle)
		}
		offerMany(t, jobs(b.Peer(t)), 2)
		first := <-s.handled
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		dead := s.alarm(t, b)
		dead.Blackhole(true)
		defer dead.Blackhole(false)
		assert.WithinDuration(t, first.Add(5*time.Second), <-s.handled, 500*time.Millisecond)
	})
}

func TestPauseAndRateAreBothWaitedFor(t *testing.T) {
	for pause, want := range map[time.Duration]time.Duration{2 * time.Second: 5 * time.Second, 8 * time.Second: 8 * time.Second} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			started := make(begun, 2)
			q := jobs(b.Peer(t), rdelayedqueue.WithRate(rratelimiter.Per(1, 5*time.Second)))
			consume(t, q, started.handle)
			offerMany(t, q, 2)
			first := <-started
			require.NoError(t, q.PauseFor(t.Context(), pause))
			assert.WithinDuration(t, first.Add(want), <-started, 10*time.Millisecond)
		})
	}
}

func TestOfferToAQueueAtItsRateWakesNobody(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, producer := b.Peer(t), b.Peer(t)
		started := make(begun, 2)
		consume(t, jobs(p), started.handle, rdelayedqueue.WithRate(rratelimiter.Per(1, 5*time.Second)))
		q := jobs(producer)
		offerMany(t, q, 2)
		<-started
		time.Sleep(time.Second)
		synctest.Wait()
		before := p.Scripts()
		for range 10 {
			offer(t, q, "x", 0)
			synctest.Wait()
		}
		assert.Equal(t, before, p.Scripts())
	})
}

func TestTakeKeepsToTheRateOfTheQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, free := jobs(p, rdelayedqueue.WithRate(rratelimiter.Per(2, 4*time.Second))), jobs(p)
		offerMany(t, q, 10)
		start := time.Now()
		messages, err := q.TakeBatch(t.Context(), 10)
		require.NoError(t, err)
		assert.Len(t, messages, 2)
		limited := make(chan time.Time, 1)
		go func() {
			take(t, q)
			limited <- time.Now()
		}()
		synctest.Wait()
		take(t, free)
		assert.WithinDuration(t, start, time.Now(), 10*time.Millisecond, "one without a rate does not wait behind it")
		assert.WithinDuration(t, start.Add(2*time.Second), <-limited, 10*time.Millisecond)
	})
}

// F19
func TestRateOutlivesTheMessages(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithRate(rratelimiter.Per(1, 48*time.Hour)))
		offer(t, q, "a", 0)
		start := time.Now()
		require.NoError(t, take(t, q).Ack(t.Context()))
		time.Sleep(30 * time.Hour)
		offer(t, q, "b", 0)
		require.NoError(t, take(t, q).Ack(t.Context()))
		assert.WithinDuration(t, start.Add(48*time.Hour), time.Now(), time.Second)
		assert.InDelta(t, (3 * 24 * time.Hour).Seconds(), b.TTL(t, "redlatch_dq:{jobs}:meta").Seconds(), 2)
	})
}

func TestBadRateIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for name, rate := range map[string]rratelimiter.Rate{
			"none": {}, "no messages": rratelimiter.Per(0, time.Second), "no time": rratelimiter.Per(1, 0),
			"long": rratelimiter.Per(1, 367*24*time.Hour), "window": rratelimiter.Window(1, time.Second),
		} {
			_, err := jobs(p, rdelayedqueue.WithRate(rate)).Take(t.Context())
			require.ErrorIs(t, err, redlatch.ErrInvalid, name)
			err = jobs(p).Consume(t.Context(), make(begun).handle, rdelayedqueue.WithRate(rate))
			require.ErrorIs(t, err, redlatch.ErrInvalid, name)
		}
		assert.Empty(t, p.Sent())
	})
}

func TestRealServerKeepsToTheRate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const messages, n, period = 50, 5, 100 * time.Millisecond
	started := make(begun, messages)
	per := rdelayedqueue.WithRate(rratelimiter.Per(n, period))
	for range 2 {
		consume(t, redlatch.GetDelayedQueue[job](connect(t, server.Addr()), "jobs", per), started.handle, rdelayedqueue.WithConcurrency(4))
	}
	lag := faulttest.MeasureLag(t, server.Addr())
	offerMany(t, redlatch.GetDelayedQueue[job](connect(t, server.Addr()), "jobs"), messages)
	at := started.collect(messages)
	took := at[messages-1].Sub(at[0])
	assert.Greater(t, took+lag.Late(), (messages-n)*period/n)
	assert.Less(t, took, (messages-n)*period/n+time.Second+lag.Late())
}
