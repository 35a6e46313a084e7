package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func sourceOfSemaphore(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("semaphore_apply.lua")
	require.NoError(t, err)
	return string(source)
}

// clientThrough returns a client of the server at addr.
func clientThrough(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	return quietClient(t, rdb, append([]redlatch.Option{quiet}, opts...)...)
}

// thereSoon waits until the server has so many permits.
func thereSoon(t *testing.T, rdb *redis.Client, name string, n int, limit time.Duration) {
	t.Helper()
	redistest.Eventually(t, limit, "the permits are there", func() error {
		if got := counter(t, rdb, name); got != n {
			return fmt.Errorf("%d permits, not %d", got, n)
		}
		return nil
	})
}

// F3
func TestSemaphoreCancelledCallsKeepNothing(t *testing.T) {
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := server.Client(t)
	c := clientThrough(t, proxy.Addr())
	const oneWay = 20 * time.Millisecond
	proxy.Delay(oneWay)
	n := faulttest.Rounds(t, 60, 300)
	var calls sync.WaitGroup
	for run := range n {
		s := c.GetSemaphore(fmt.Sprintf("s-%d", run%10))
		if run < 10 {
			give(t, s, 1000)
		}
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(4*oneWay*time.Duration(run)/time.Duration(n), cancel)
			defer timer.Stop()
			err := s.Acquire(ctx, 1)
			if err == nil {
				<-ctx.Done()
				err = s.Release(ctx, 1)
			} else if errors.Is(err, context.Canceled) {
				err = nil
			}
			assert.NoError(t, err)
		})
	}
	calls.Wait()
	for i := range 10 {
		thereSoon(t, rdb, fmt.Sprintf("s-%d", i), 1000, semaphoreLimit)
	}
}

// F4
func TestSemaphoreWaitersGoOnWithoutMessages(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 1)
		take(t, s, 1)
		for range 20 {
			waiting := beginTake(t.Context(), s, 1)
			time.Sleep(3 * time.Second)
			require.NoError(t, b.Redis.Incr(t.Context(), "s").Err()) // without a message
			start := time.Now()
			require.NoError(t, ended(t, waiting))
			require.LessOrEqual(t, time.Since(start), semaphoreRecheck+semaphoreMoment)
		}
	})
}

// F4
func TestSemaphoreReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	server := redistest.Start(t)
	proxy, lag := faulttest.NewProxy(t, server.Addr()), faulttest.MeasureLag(t, server.Addr())
	holder, waiter := clientThrough(t, server.Addr()), clientThrough(t, proxy.Addr())
	var released sync.Map
	proxy.OnCommand(func(cmd []string) {
		if !faulttest.Named("SUBSCRIBE")(cmd) {
			return
		}
		for _, channel := range cmd[1:] {
			name := channel[len("redisson_sc:{") : len(channel)-1]
			assert.NoError(t, holder.GetSemaphore(name).Release(t.Context(), 1))
			released.Store(name, time.Now())
		}
	})
	for run := range faulttest.Rounds(t, 100, 1000) {
		s := waiter.GetSemaphore(fmt.Sprintf("gap-%d", run))
		take(t, s, 1)
		at, ok := released.Load(s.Name())
		require.True(t, ok, "acquired after the release")
		require.Less(t, time.Since(at.(time.Time)), 700*time.Millisecond+lag.Late(), "less than a re-check")
	}
	proxy.OnCommand(nil)
}

// F10
func TestSemaphoreWaitersShareOneSubscriptionConnection(t *testing.T) {
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr(), "f10-*")
	holder, waiter := clientThrough(t, server.Addr()), clientThrough(t, server.Addr())
	rdb := server.Client(t)
	const names = 200
	var waiting []<-chan error
	for i := range names {
		waiting = append(waiting, beginTake(t.Context(), waiter.GetSemaphore(fmt.Sprintf("f10-%d", i)), 1))
	}
	redistest.Eventually(t, semaphoreLimit, "all have subscribed", func() error {
		channels, err := rdb.PubSubChannels(t.Context(), "redisson_sc:*").Result()
		if err == nil && len(channels) < names {
			err = fmt.Errorf("%d channels", len(channels))
		}
		return err
	})
	list, err := rdb.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(list, "\n"), list)
	for i := range names {
		release(t, holder.GetSemaphore(fmt.Sprintf("f10-%d", i)), 1)
	}
	for _, w := range waiting {
		require.NoError(t, ended(t, w))
	}
}

// F16
func TestSemaphoreCallsEndWithTheirContextAndRecover(t *testing.T) {
	server := redistest.Start(t)
	proxy, lag := faulttest.NewProxy(t, server.Addr()), faulttest.MeasureLag(t, server.Addr())
	c := clientThrough(t, proxy.Addr(), redlatch.WithCloseGrace(0))
	for verb, call := range semaphoreCalls {
		s := c.GetSemaphore("f16 " + verb)
		release(t, s, 5)
		proxy.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		err := call(ctx, s)
		cancel()
		require.Less(t, time.Since(start), 600*time.Millisecond+lag.Late(), verb)
		require.ErrorIs(t, err, context.DeadlineExceeded, verb)
		proxy.Blackhole(false)
		work, cancel := context.WithTimeout(t.Context(), semaphoreLimit)
		require.NoError(t, s.AddPermits(work, 1), verb)
		require.NoError(t, s.Acquire(work, 1), verb)
		cancel()
	}
	proxy.Blackhole(true)
	waiting := beginTake(context.WithoutCancel(t.Context()), c.GetSemaphore("f16"), 1)
	start := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(start), 3*time.Second+500*time.Millisecond+lag.Late())
	require.ErrorIs(t, ended(t, waiting), redlatch.ErrClosed)
	proxy.Blackhole(false)
}

// F16
func TestSemaphoreWithoutARedisFailsAtOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		p.Refuse(true)
		start := time.Now()
		require.Error(t, p.GetSemaphore("s").Acquire(t.Context(), 1))
		require.Less(t, time.Since(start), 10*time.Second)
		p.Refuse(false)
		release(t, p.GetSemaphore("s"), 1)
		requireThere(t, p.GetSemaphore("s"), 1)
	})
}

// F19
func TestSemaphoreOperationsLeaveOneKeyThatExpires(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetSemaphore("s")
		give(t, s, 3)
		for range 50 {
			take(t, s, 1)
			release(t, s, 1)
		}
		require.Len(t, b.Keys(t), 2)
		time.Sleep(time.Hour + time.Minute)
		require.Equal(t, []string{"s"}, b.Keys(t))
		take(t, s, 1)
		requireThere(t, s, 2)
	})
}

func TestClosingSemaphoreGivesBackWhatNobodyHas(t *testing.T) {
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := server.Client(t)
	for run := range faulttest.Rounds(t, 5, 30) {
		c := clientThrough(t, proxy.Addr(), redlatch.WithCloseGrace(0))
		name := fmt.Sprintf("s-%d", run)
		give(t, c.GetSemaphore(name), 20)
		proxy.Delay(10 * time.Millisecond)
		var taken, failed int
		var mu sync.Mutex // guards both
		var calls sync.WaitGroup
		started := make(chan struct{}, 20) // one for each call
		for range 20 {
			calls.Go(func() {
				started <- struct{}{}
				err := c.GetSemaphore(name).Acquire(context.WithoutCancel(t.Context()), 1)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					taken++
					return
				}
				failed++
				assert.ErrorIs(t, err, redlatch.ErrClosed)
			})
		}
		for range 20 {
			<-started
		}
		require.NoError(t, c.Close())
		calls.Wait()
		proxy.Delay(0)
		require.Equal(t, 20-taken, counter(t, rdb, name), "%d taken, %d failed", taken, failed)
	}
}
