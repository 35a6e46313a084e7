package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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

type handler = func(ctx context.Context, m *rdelayedqueue.Message[job]) error

// consume runs a consumer until the returned function is called, which returns what Consume did.
func consume(t *testing.T, q *rdelayedqueue.Queue[job], h handler, opts ...rdelayedqueue.ConsumeOption) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1) // what Consume returns
	go func() { ended <- q.Consume(ctx, h, opts...) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestConsumeHandlesAllAndStops(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		var running, most, handled atomic.Int64
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			handled.Add(1)
			return nil
		}, rdelayedqueue.WithConcurrency(4))
		for i := range 40 {
			offer(t, q, fmt.Sprint(i), time.Duration(i%3)*time.Second)
		}
		time.Sleep(13 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 40, handled.Load())
		assert.EqualValues(t, 4, most.Load())
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
		assert.NoError(t, stop())
	})
}

func TestFailedAttemptsBackOffAndDie(t *testing.T) {
	failures := map[string]struct {
		handle handler
		text   string
	}{
		"error":               {func(context.Context, *rdelayedqueue.Message[job]) error { return errors.New("no stock") }, "no stock"},
		"panic":               {func(context.Context, *rdelayedqueue.Message[job]) error { panic("boom") }, "panic: boom at rdelayedqueue_test.TestFailed"},
		"exit":                {func(context.Context, *rdelayedqueue.Message[job]) error { runtime.Goexit(); return nil }, "ended its goroutine"},
		"timeout":             {func(ctx context.Context, _ *rdelayedqueue.Message[job]) error { <-ctx.Done(); return nil }, "took too long"},
		"the context's error": {func(ctx context.Context, _ *rdelayedqueue.Message[job]) error { <-ctx.Done(); return ctx.Err() }, "took too long"},
	}
	for name, tc := range failures {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t))
				var mu sync.Mutex
				var at []time.Time
				var attempts []int
				handle := func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
					mu.Lock()
					at, attempts = append(at, time.Now()), append(attempts, m.Attempt)
					mu.Unlock()
					return tc.handle(ctx, m)
				}
				offer(t, q, "a", 0)
				offer(t, q, "b", time.Hour)
				consume(t, q, handle, rdelayedqueue.WithMaxAttempts(3), rdelayedqueue.WithTimeout(time.Second),
					rdelayedqueue.WithBackoff(func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }))
				time.Sleep(30 * time.Second)
				assert.Equal(t, rdelayedqueue.Stats{Delayed: 2, Failed: 1}, stats(t, q))
				time.Sleep(10 * time.Minute)
				assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Dead: 1}, stats(t, q))
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, []int{1, 2, 3}, attempts)
				assert.WithinDuration(t, at[0].Add(time.Minute), at[1], 1100*time.Millisecond)
				assert.WithinDuration(t, at[1].Add(2*time.Minute), at[2], 1100*time.Millisecond)
				dead, err := q.Dead(t.Context(), 10)
				require.NoError(t, err)
				require.Len(t, dead, 1)
				assert.Contains(t, dead[0].Error, tc.text)
				assert.Equal(t, 3, dead[0].Attempt)
			})
		})
	}
}

func TestVisibilityIsRenewedWhileAHandlerRuns(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, other := jobs(b.Peer(t)), jobs(b.Peer(t))
		offer(t, q, "a", 0)
		began, done := make(chan struct{}), make(chan error, 1)
		stop := consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			close(began)
			time.Sleep(10 * time.Minute)
			done <- ctx.Err()
			return nil
		}, rdelayedqueue.WithVisibility(time.Second))
		<-began // the other one is not to have it first
		consume(t, other, func(context.Context, *rdelayedqueue.Message[job]) error {
			t.Error("it was delivered twice")
			return nil
		})
		assert.NoError(t, <-done)
		synctest.Wait()
		assert.NoError(t, stop())
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestStoppedConsumerFinishesWhatRunsAndGivesBackTheRest(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, other := jobs(b.Peer(t)), jobs(b.Peer(t))
		for i := range 5 {
			offer(t, q, fmt.Sprint(i), 0)
		}
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		ended := make(chan error, 1)
		causes := make(chan error, 1)
		began := make(chan struct{})
		go func() {
			ended <- q.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
				close(began)
				assert.Equal(t, "kept", ctx.Value(key{}))
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil
			}, rdelayedqueue.WithPrefetch(3), rdelayedqueue.WithStopGrace(4*time.Second))
		}()
		<-began
		synctest.Wait()
		claimed := stats(t, other).InFlight
		assert.True(t, claimed >= 2 && claimed <= 4, "%d: the one that is handled, and prefetched ones", claimed)
		start := time.Now()
		cancel()
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{Ready: 4, InFlight: 1}, stats(t, other), "prefetched messages are back at once")
		m := take(t, other)
		assert.Equal(t, 1, m.Attempt, "nobody began to work on it")
		assert.NoError(t, <-ended)
		assert.WithinDuration(t, start.Add(4*time.Second), time.Now(), 10*time.Millisecond)
		assert.ErrorIs(t, <-causes, rdelayedqueue.ErrStopped)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 3, InFlight: 1}, stats(t, other), "the last message was acknowledged")
	})
}

func TestCloseStopsConsumersAndTakes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCloseGrace(time.Second))
		q, other := jobs(p), jobs(b.Peer(t))
		offer(t, q, "taken", 0)
		m := take(t, q)
		ended, took := make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- q.Consume(t.Context(), func(context.Context, *rdelayedqueue.Message[job]) error { return nil })
		}()
		go func() {
			_, err := q.Take(t.Context())
			took <- err
		}()
		time.Sleep(time.Second)
		require.NoError(t, p.Close())
		assert.ErrorIs(t, <-ended, redlatch.ErrClosed)
		assert.ErrorIs(t, <-took, redlatch.ErrClosed)
		assert.ErrorIs(t, context.Cause(m.Context()), redlatch.ErrClosed)
		_, err := q.Offer(t.Context(), job{}, 0)
		assert.ErrorIs(t, err, redlatch.ErrClosed)
		assert.Equal(t, 1, stats(t, other).Ready, "what was not finished is delivered again at once")
	})
}

func TestHandlerMaySettleItsMessage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "a", 0)
		consume(t, q, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			return errors.Join(m.Reject(ctx, "mine"), errors.New("counts no more"))
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		dead, err := q.Dead(t.Context(), 2)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		assert.Equal(t, "mine", dead[0].Error)
	})
}

// F8: a handler that has rejected its message returns nil, whatever Reject returned.
func TestMessageThatAHandlerCouldNotRejectIsNotAcknowledged(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const many = 10
				p, other := b.Peer(t), jobs(b.Peer(t))
				for range many {
					offer(t, other, "a", 0)
				}
				var begun sync.WaitGroup
				begun.Add(many)
				gone := make(chan struct{})
				consume(t, jobs(p), func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
					begun.Done()
					<-gone
					ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
					assert.Error(t, m.Reject(ctx, "bad"))
					return nil
				}, rdelayedqueue.WithConcurrency(many))
				begun.Wait()
				outage(p, true)
				close(gone)
				time.Sleep(5 * time.Second)
				outage(p, false)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, rdelayedqueue.Stats{Dead: many}, stats(t, other))
			})
		})
	}
}

// F8: what was done counts, though Redis was away when it was done, and the visibility over.
func TestAckAfterAnOutageThatOutlastedTheVisibilityCounts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), jobs(b.Peer(t))
		offer(t, other, "a", 0)
		began := make(chan struct{})
		consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error {
			close(began)
			time.Sleep(35 * time.Second)
			return nil
		}, rdelayedqueue.WithConcurrency(1)) // so that this consumer does not claim it again meanwhile
		<-began
		synctest.Wait()
		p.Down(true)
		time.Sleep(40 * time.Second)
		p.Down(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, other))
	})
}

// F21
func TestIdleConsumersCostNextToNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error { return nil }, rdelayedqueue.WithConcurrency(64))
		time.Sleep(time.Minute)
		before := p.Scripts()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.LessOrEqual(t, p.Scripts()-before, 200, "in ten minutes")
		assert.Positive(t, p.Scripts()-before, "the safety check")
	})
}

// F21
func TestOneSleepingClientIsWokenForEachMessage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const clients = 8
		producer := jobs(b.Peer(t))
		var peers []*locktest.Peer
		handled := make(chan time.Time, 100)
		for range clients {
			p := b.Peer(t)
			peers = append(peers, p)
			consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error {
				handled <- time.Now()
				return nil
			}, rdelayedqueue.WithConcurrency(4))
		}
		time.Sleep(time.Second)
		count := func() (n int) {
			for _, p := range peers {
				n += p.Scripts()
			}
			return n
		}
		before := count()
		for range 10 {
			start := time.Now()
			offer(t, producer, "now", 0)
			assert.WithinDuration(t, start, <-handled, 2*time.Millisecond)
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		// Of the client that was woken. Redis gets the text of one script, which it does not know yet.
		assert.LessOrEqual(t, count()-before, 10*3+1, "a claim, a look for the next one and an Ack for each")
	})
}

func TestAlarmIsHeardBySomebodyElseWhenItsClientDies(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		producer := jobs(b.Peer(t))
		handled := make(chan time.Time, 10)
		var peers []*locktest.Peer
		for range 3 {
			p := b.Peer(t, redlatch.WithCloseGrace(0))
			peers = append(peers, p)
			consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error {
				handled <- time.Now()
				return nil
			})
		}
		time.Sleep(time.Second)
		offer(t, producer, "x", time.Minute) // long enough for all to know of it by their safety checks
		start := time.Now()
		time.Sleep(50 * time.Second)
		meta := b.Hash(t, "redlatch_dq:{jobs}:meta")
		require.NotEmpty(t, meta["alarm"])
		require.NotEmpty(t, meta["spare"])
		require.NotEqual(t, meta["alarm"], meta["spare"])
		dead := whoIs(t, peers, meta["alarm"])
		dead.Blackhole(true)
		defer dead.Blackhole(false)
		assert.WithinDuration(t, start.Add(time.Minute), <-handled, 500*time.Millisecond)
	})
}

// whoIs returns the client of an id, which its owner ids begin with.
func whoIs(t *testing.T, peers []*locktest.Peer, id string) *locktest.Peer {
	t.Helper()
	for _, p := range peers {
		h, err := p.Client.GetLock("id").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		if strings.HasPrefix(h.Owner(), id+":") {
			return p
		}
	}
	require.Fail(t, "no such client", id)
	return nil
}

func TestHandlersDoNotWaitForTheEndsOfOthers(t *testing.T) {
	for prefetch, begun := range map[int]int64{0: 1, 2: 3, 5: 6} {
		t.Run(fmt.Sprint("prefetch ", prefetch), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				q := jobs(p)
				for i := range 8 {
					offer(t, q, fmt.Sprint(i), 0)
				}
				var handled atomic.Int64
				stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
					if handled.Add(1) == 1 {
						time.Sleep(time.Millisecond) // until others are claimed
						p.HangReplies(1)             // that of its acknowledgement
					}
					return nil
				}, rdelayedqueue.WithPrefetch(prefetch))
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				assert.Equal(t, begun, handled.Load(), "no more are claimed than the handlers and the prefetch")
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, 8, handled.Load())
				assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
				assert.NoError(t, stop())
			})
		})
	}
}

// F8: a deployment must not use up the attempts of what takes long.
func TestStoppedHandlerHasMadeNoAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		err  func(ctx context.Context) error
		left rdelayedqueue.Stats
	}{
		"the context's error": {context.Cause, rdelayedqueue.Stats{Ready: 1}},
		"another error":       {func(context.Context) error { return errors.New("cut off") }, rdelayedqueue.Stats{Ready: 1}},
		"rejection":           {func(context.Context) error { return rdelayedqueue.Reject(errors.New("no")) }, rdelayedqueue.Stats{Dead: 1}},
		"done":                {func(context.Context) error { return nil }, rdelayedqueue.Stats{}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(1))
				offer(t, q, "a", 0)
				stop := consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
					<-ctx.Done()
					return tc.err(ctx)
				}, rdelayedqueue.WithStopGrace(time.Second))
				synctest.Wait()
				require.NoError(t, stop())
				left := stats(t, q)
				left.Oldest = 0
				require.Equal(t, tc.left, left)
				if left.Ready > 0 {
					assert.Equal(t, 1, take(t, q).Attempt)
				}
			})
		})
	}
}
