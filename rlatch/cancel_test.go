package rlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlatch"
)

// outcomes counts what calls that were cancelled at some instant have come to.
type outcomes struct {
	mu                   sync.Mutex // guards the rest
	done, never, unknown int
}

func (o *outcomes) add(t *testing.T, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.done++
	case errors.Is(err, redlatch.ErrUnknown):
		o.unknown++
		assert.ErrorIs(t, err, context.Canceled)
	default:
		o.never++
		assert.ErrorIs(t, err, context.Canceled)
	}
}

// F3
func TestCancelledCallsReportWhatTheyCounted(t *testing.T) {
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := server.Client(t)
	c, direct := clientThrough(t, proxy.Addr()), clientThrough(t, server.Addr()).GetCountDownLatch("n")
	const oneWay, most = 20 * time.Millisecond, 1_000_000
	set(t, direct, most)
	l := c.GetCountDownLatch("n")
	requireCount(t, l, most) // it is connected
	proxy.Delay(oneWay)
	n := faulttest.Rounds(t, 200, 2000)
	var all outcomes
	var calls sync.WaitGroup
	for run := range n {
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			after := 5 * oneWay * time.Duration(run) / time.Duration(n)
			if run == n-1 {
				after = limit // one is answered however busy the machine is
			}
			timer := time.AfterFunc(after, cancel)
			defer timer.Stop()
			if run%2 == 0 {
				all.add(t, l.CountDown(ctx))
				return
			}
			_, err := l.CountDownOnce(ctx, fmt.Sprint("worker ", run))
			all.add(t, err)
		})
	}
	calls.Wait()
	proxy.Delay(0)
	require.NoError(t, l.CountDown(t.Context()), "all before it are settled then")
	counted := most - count(t, rdb, "n") - 1
	t.Logf("%d done, %d not, %d unknown; %d counted", all.done, all.never, all.unknown, counted)
	assert.GreaterOrEqual(t, counted, all.done)
	assert.LessOrEqual(t, counted, all.done+all.unknown)
	assert.Positive(t, all.done)
	assert.Positive(t, all.never+all.unknown)
}

// F3
func TestCancelledAwaitLeavesNobodyBehind(t *testing.T) {
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	proxy, lag := faulttest.NewProxy(t, server.Addr()), faulttest.MeasureLag(t, server.Addr())
	rdb := server.Client(t)
	c := clientThrough(t, proxy.Addr())
	direct := clientThrough(t, server.Addr())
	const oneWay = 20 * time.Millisecond
	var latches []*rlatch.Latch
	for i := range 10 {
		l := c.GetCountDownLatch(fmt.Sprintf("n-%d", i))
		set(t, direct.GetCountDownLatch(l.Name()), 1)
		latches = append(latches, l)
	}
	proxy.Delay(oneWay)
	n := faulttest.Rounds(t, 200, 2000)
	var calls sync.WaitGroup
	for run := range n {
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var ended time.Time
			timer := time.AfterFunc(6*oneWay*time.Duration(run)/time.Duration(n), func() {
				ended = time.Now()
				cancel()
			})
			defer timer.Stop()
			err := latches[run%len(latches)].Await(ctx)
			assert.ErrorIs(t, err, context.Canceled)
			assert.Less(t, time.Since(ended), 100*time.Millisecond+lag.Late(), "at once")
		})
	}
	calls.Wait()
	proxy.Delay(0)
	redistest.Eventually(t, limit, "nobody listens any more", func() error {
		channels, err := rdb.PubSubChannels(t.Context(), "redisson_countdownlatch__channel__*").Result()
		if err == nil && len(channels) > 0 {
			err = fmt.Errorf("%d channels", len(channels))
		}
		return err
	})
	for _, l := range latches {
		requireCount(t, l, 1)
		_, err := l.Delete(t.Context())
		require.NoError(t, err)
	}
}
