package rdelayedqueue_test

import (
	"context"
	"runtime"
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

// outages are ways in which Redis can be gone.
var outages = map[string]func(p *locktest.Peer, on bool){
	"refused": func(p *locktest.Peer, on bool) {
		p.Refuse(on)
		p.Cut()
	},
	"silent": func(p *locktest.Peer, on bool) { p.Blackhole(on) },
}

func TestConsumerStopsInAnOutage(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const grace = time.Second
				p := b.Peer(t)
				q := jobs(p)
				for range 5 { // one is handled, others are claimed ahead
					offer(t, q, "a", 0)
				}
				began, end := make(chan struct{}), make(chan struct{})
				stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
					close(began)
					<-end
					return nil
				}, rdelayedqueue.WithStopGrace(grace), rdelayedqueue.WithPrefetch(4))
				<-began
				synctest.Wait()
				outage(p, true)
				defer outage(p, false)
				close(end)
				start := time.Now()
				require.NoError(t, stop())
				assert.LessOrEqual(t, time.Since(start), grace+3*time.Second+10*time.Millisecond)
			})
		})
	}
}

// F8: nobody works on it any more, so it must not be renewed.
func TestMessageThatAStoppedConsumerCouldNotEndIsDueAgain(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p, other := b.Peer(t), jobs(b.Peer(t))
				offer(t, other, "a", 0)
				began, end := make(chan struct{}), make(chan struct{})
				stop := consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error {
					close(began)
					<-end
					return nil
				}, rdelayedqueue.WithStopGrace(0))
				<-began
				synctest.Wait()
				outage(p, true)
				close(end)
				require.NoError(t, stop())
				outage(p, false)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				assert.Zero(t, stats(t, other).InFlight, "it is acknowledged late, or due again")
				assert.Empty(t, p.Holds())
			})
		})
	}
}

func TestClosingConsumerGivesBackWhatItHasNotBegun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the handler then gets on before Consume hears of the end
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p, rdelayedqueue.WithMaxAttempts(1)), jobs(b.Peer(t))
		held := locktest.Acquire(t, t.Context(), p.GetLock("held"))
		for range 11 {
			offer(t, q, "a", 0)
		}
		began := make(chan struct{}, 11)
		consume(t, q, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			began <- struct{}{}
			err := m.Ack(ctx)
			<-held.Context().Done()
			return err
		}, rdelayedqueue.WithPrefetch(10))
		<-began
		synctest.Wait()
		require.GreaterOrEqual(t, stats(t, other).InFlight, 6, "most are claimed ahead")
		start := time.Now()
		go func() {
			<-held.Context().Done()
			assert.NoError(t, held.Unlock(t.Context()))
		}()
		require.NoError(t, p.Close())
		assert.Less(t, time.Since(start), time.Second)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 10}, stats(t, other))
		assert.Equal(t, 1, take(t, other).Attempt)
	})
}

// A message of Take is not held until somebody unlocks: perhaps nobody will.
func TestCloseWaitsForNoMessageOfTake(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []redlatch.Option
		down bool
		left rdelayedqueue.Stats
	}{
		"given back":    {left: rdelayedqueue.Stats{Ready: 5}},
		"abandoned":     {opts: []redlatch.Option{redlatch.WithAbandonOnClose()}, left: rdelayedqueue.Stats{InFlight: 5}},
		"without Redis": {down: true, left: rdelayedqueue.Stats{InFlight: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, tc.opts...)
				q, other := jobs(p), jobs(b.Peer(t))
				for range 6 {
					offer(t, q, "a", 0)
				}
				messages, err := q.TakeBatch(t.Context(), 6)
				require.NoError(t, err)
				acked := messages[5]
				require.NoError(t, acked.Ack(t.Context()))
				p.Down(tc.down)
				start := time.Now()
				require.NoError(t, p.Close())
				assert.LessOrEqual(t, time.Since(start), tail(tc.down))
				for i, call := range []func(m *rdelayedqueue.Message[job]) error{
					func(m *rdelayedqueue.Message[job]) error { return m.Ack(t.Context()) },
					func(m *rdelayedqueue.Message[job]) error { return m.Nack(t.Context(), 0) },
					func(m *rdelayedqueue.Message[job]) error { return m.Snooze(t.Context(), 0) },
					func(m *rdelayedqueue.Message[job]) error { return m.Reject(t.Context(), "") },
					func(m *rdelayedqueue.Message[job]) error { return m.Extend(t.Context(), time.Minute) },
				} {
					err := call(messages[i])
					require.ErrorIs(t, err, redlatch.ErrClosed, i)
					require.NotErrorIs(t, err, redlatch.ErrUnknown, i)
					require.NotErrorIs(t, err, rdelayedqueue.ErrNotHeld, i)
				}
				require.NoError(t, acked.Ack(t.Context()), "it was acknowledged in time")
				assert.Equal(t, tc.left, stats(t, other))
			})
		})
	}
}

// tail is how long a Close may take for which there is nothing to wait.
func tail(down bool) time.Duration {
	if down {
		return 3 * time.Second
	}
	return 10 * time.Millisecond
}

func TestMessageOfTakeCanBeAcknowledgedWhileCloseWaitsForAnother(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p), jobs(b.Peer(t))
		offer(t, q, "taken", 0)
		m := take(t, q)
		offer(t, q, "handled", 0)
		began := make(chan struct{})
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			close(began)
			time.Sleep(2 * time.Second)
			return nil
		})
		<-began
		time.AfterFunc(time.Second, func() { assert.NoError(t, m.Ack(t.Context())) })
		start := time.Now()
		require.NoError(t, p.Close())
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, other))
	})
}

func TestClosedClientLeavesNoGoroutineInAnOutage(t *testing.T) {
	cases := map[string]struct {
		work func(t *testing.T, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job])
		opts []redlatch.Option
	}{
		"an Ack under way": {
			func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
				require.ErrorIs(t, m.Ack(t.Context()), redlatch.ErrUnknown)
			}, nil,
		},
		"an Ack under way, abandoned": {
			func(t *testing.T, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) {
				require.ErrorIs(t, m.Ack(t.Context()), redlatch.ErrUnknown)
			}, []redlatch.Option{redlatch.WithAbandonOnClose()},
		},
		"a claim under way": {
			func(t *testing.T, q *rdelayedqueue.Queue[job], _ *rdelayedqueue.Message[job]) {
				go func() {
					_, err := q.Take(t.Context())
					assert.ErrorIs(t, err, redlatch.ErrClosed)
				}()
				synctest.Wait()
			}, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, append(tc.opts, redlatch.WithCloseGrace(0))...)
				q := jobs(p)
				offer(t, q, "a", 0)
				m := take(t, q)
				p.Blackhole(true)
				defer p.Blackhole(false)
				tc.work(t, q, m)
				start := time.Now()
				require.NoError(t, p.Close())
				assert.LessOrEqual(t, time.Since(start), 3*time.Second)
				synctest.Wait()
				stacks := make([]byte, 1<<20)
				assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "internal/core.(*Goroutines)")
			})
		})
	}
}

func TestCloseNeedsFewGoroutinesForManyMessages(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCloseGrace(0))
		q, other := jobs(p), jobs(b.Peer(t))
		_, err := q.OfferBatch(t.Context(), make([]rdelayedqueue.Item[job], 300))
		require.NoError(t, err)
		for range 3 {
			_, err := q.TakeBatch(t.Context(), 100)
			require.NoError(t, err)
		}
		p.Blackhole(true)
		closed := make(chan error, 1)
		go func() { closed <- p.Close() }()
		synctest.Wait()
		stacks := make([]byte, 4<<20)
		crew := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "created by github.com/redlatch/redlatch/internal/core.(*Goroutines)")
		assert.Positive(t, crew)
		assert.LessOrEqual(t, crew, 3)
		p.Blackhole(false)
		require.NoError(t, <-closed)
		assert.Equal(t, 300, stats(t, other).Ready)
	})
}
