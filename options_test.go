package redlatch_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

func TestBadOptionsAreErrInvalid(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for want, opt := range map[string]redlatch.Option{
		"an option is nil":                         nil,
		"lease 0s is below 10ms":                   redlatch.WithWatchdogTimeout(0),
		"lease -1s is below 10ms":                  redlatch.WithWatchdogTimeout(-time.Second),
		"lease 9ms is below 10ms":                  redlatch.WithWatchdogTimeout(9 * time.Millisecond),
		"lease 25h0m0s is above 24h0m0s":           redlatch.WithWatchdogTimeout(25 * time.Hour),
		"fair wait timeout 99ms is below 100ms":    redlatch.WithFairWaitTimeout(99 * time.Millisecond),
		"fair wait timeout 5m1s is above 5m0s":     redlatch.WithFairWaitTimeout(301 * time.Second),
		"hand-off budget -1ns is below 0s":         redlatch.WithHandoffBudget(-1),
		"hand-off budget 31s is above 1s":          redlatch.WithHandoffBudget(31 * time.Second),
		"token TTL 999ms is below 1s":              redlatch.WithTokenTTL(999 * time.Millisecond),
		"token TTL 87601h0m0s is above 87600h0m0s": redlatch.WithTokenTTL(87601 * time.Hour),
		"close grace -1ns is below 0s":             redlatch.WithCloseGrace(-1),
		"close grace 11m0s is above 10m0s":         redlatch.WithCloseGrace(11 * time.Minute),
		"call timeout 9ms is below 10ms":           redlatch.WithCallTimeout(9 * time.Millisecond),
		"call timeout -1s is below 10ms":           redlatch.WithCallTimeout(-time.Second),
		"call timeout 1h0m1s is above 1h0m0s":      redlatch.WithCallTimeout(time.Hour + time.Second),
		"0 replicas are not 1 to 100":              redlatch.WithReplicas(0, time.Second),
		"101 replicas are not 1 to 100":            redlatch.WithReplicas(101, time.Second),
		"timeout of wait 0s is below 1ms":          redlatch.WithReplicas(1, 0),
		"timeout of wait 1.1s is above ":           redlatch.WithReplicas(1, 1100*time.Millisecond),
		"timeout of waitaof -1ns is below 1ms":     redlatch.WithDurability(-1),
		"timeout of waitaof 2.1s is above ":        redlatch.WithDurability(2100 * time.Millisecond),
		"slow wait -1ns is below 0s":               redlatch.WithSlowLog(-1, 0),
		"slow hold -1ns is below 0s":               redlatch.WithSlowLog(0, -1),
		"slow hold 87601h0m0s is above 87600h0m0s": redlatch.WithSlowLog(0, 87601*time.Hour),
		"3 is no value of ShardedWakeups":          redlatch.WithShardedWakeups(redlatch.ShardedNever + 1),
		"the logger is nil":                        redlatch.WithLogger(nil),
		"name prefix, with an object named x: ":    redlatch.WithNamePrefix("a}b"),
		"the name has 513 bytes, more than 512":    redlatch.WithNamePrefix(strings.Repeat("x", 512)),
		`the name "a\nx" has a control character`:  redlatch.WithNamePrefix("a\n"),
		`the name "{x" has a { that is not closed`: redlatch.WithNamePrefix("{"),
		`the name "{}x" has an empty hash tag`:     redlatch.WithNamePrefix("{}"),
	} {
		c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(time.Second), opt)
		if assert.ErrorIs(t, err, redlatch.ErrInvalid, want) {
			assert.ErrorContains(t, err, want)
			assert.True(t, strings.HasPrefix(err.Error(), "redlatch: new: "), "%v", err)
		}
		assert.Nil(t, c)
		_, err = redlatch.Open(t.Context(), "redis://127.0.0.1:1", opt)
		assert.ErrorIs(t, err, redlatch.ErrInvalid, "Open judges before it dials")
		_, err = embedded.Open(opt)
		assert.ErrorIs(t, err, redlatch.ErrInvalid)
	}
}

func TestGoodOptions(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for _, opts := range [][]redlatch.Option{
			nil,
			{redlatch.WithWatchdogTimeout(10 * time.Millisecond)},
			{redlatch.WithWatchdogTimeout(24 * time.Hour), redlatch.WithCallTimeout(time.Hour)},
			{redlatch.WithCallTimeout(10 * time.Millisecond)},
			{redlatch.WithFairWaitTimeout(100 * time.Millisecond), redlatch.WithHandoffBudget(0), redlatch.WithCloseGrace(0)},
			{redlatch.WithFairWaitTimeout(5 * time.Minute), redlatch.WithHandoffBudget(30 * time.Second), redlatch.WithCloseGrace(10 * time.Minute)},
			{redlatch.WithRedissonFairQueue(), redlatch.WithTokenTTL(time.Second), redlatch.WithAbandonOnClose()},
			{redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithObserver(redlatch.Observer{})},
			{redlatch.WithNamePrefix("{app}:"), redlatch.WithTokenTTL(10 * 365 * 24 * time.Hour)},
			{redlatch.WithNamePrefix(strings.Repeat("x", 100))},
			{redlatch.WithShardedWakeups(redlatch.ShardedNever)},
		} {
			p := b.Peer(t, opts...)
			locktest.Free(t, p.GetLock("orders"))
			locktest.Free(t, p.GetFencedLock("orders"))
			require.NoError(t, p.Close())
		}
	})
}

func TestObserverIsToldOfRenewalsThatFail(t *testing.T) {
	type round struct {
		renewed, lost int
		err           error
	}
	for _, holds := range []int{3, 300} { // the second number is enough for cohorts
		t.Run(strconv.Itoa(holds), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var mu sync.Mutex
				var rounds []round
				p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{Renewed: func(renewed, lost int, err error) {
					mu.Lock()
					defer mu.Unlock()
					rounds = append(rounds, round{renewed, lost, err})
				}}))
				next := func(d time.Duration) (sum round) {
					mu.Lock()
					rounds = nil
					mu.Unlock()
					time.Sleep(d)
					mu.Lock()
					defer mu.Unlock()
					for _, r := range rounds {
						sum.renewed, sum.lost = sum.renewed+r.renewed, sum.lost+r.lost
						if r.err != nil {
							assert.Zero(t, r.renewed)
							assert.Zero(t, r.lost)
							sum.err = r.err
						}
					}
					return sum
				}
				for i := range holds {
					locktest.Acquire(t, t.Context(), p.GetLock("orders"+strconv.Itoa(i)))
				}
				assert.Equal(t, round{renewed: holds}, next(14*time.Second))
				b.Delete(t, "orders1")
				assert.Equal(t, round{renewed: holds - 1, lost: 1}, next(10*time.Second))
				p.Refuse(true)
				p.Cut()
				failed := next(10 * time.Second)
				assert.Zero(t, failed.renewed)
				assert.Error(t, failed.err)
				p.Refuse(false)
			})
		})
	}
}

func TestObserverHearsTheNameOfAQueueAsItWasGiven(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		woken := make(chan string, 99)
		p := b.Peer(t, redlatch.WithNamePrefix("app:"), redlatch.WithObserver(redlatch.Observer{Woken: func(_, name string) { woken <- name }}))
		taken := make(chan error, 1)
		go func() {
			m, err := redlatch.GetDelayedQueue[int](p.Client, "orders").Take(t.Context())
			if err == nil {
				err = m.Ack(t.Context())
			}
			taken <- err
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		_, err := redlatch.GetDelayedQueue[int](b.Peer(t, redlatch.WithNamePrefix("app:")).Client, "orders").Offer(t.Context(), 1, 0)
		require.NoError(t, err)
		require.NoError(t, <-taken)
		require.NotEmpty(t, woken)
		assert.Equal(t, "orders", <-woken)
	})
}

func TestObserverIsTold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		acquired, released, lost, woken := make(chan time.Duration, 9), make(chan time.Duration, 9), make(chan error, 9), make(chan string, 9)
		var renewed atomic.Int32
		p := b.Peer(t, redlatch.WithNamePrefix("app:"), redlatch.WithObserver(redlatch.Observer{
			AcquireEnd: func(_ context.Context, e redlatch.AcquireEndEvent) {
				assert.Equal(t, "lock", e.Kind)
				assert.Equal(t, "orders", e.Name)
				acquired <- e.Waited
			},
			HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) {
				assert.Equal(t, "orders", e.Name)
				if e.Err != nil {
					lost <- e.Err
				} else {
					released <- e.Held
				}
			},
			Renewed: func(n, _ int, err error) {
				assert.NoError(t, err)
				renewed.Add(int32(n))
			},
			Woken: func(_, name string) { woken <- name },
		}))
		l := p.GetLock("orders")
		other := locktest.Acquire(t, t.Context(), b.Peer(t, redlatch.WithNamePrefix("app:")).GetLock("orders"))
		go func() {
			time.Sleep(7 * time.Second)
			assert.NoError(t, other.Unlock(t.Context()))
		}()
		h := locktest.Acquire(t, t.Context(), l)
		assert.InDelta(t, 7*time.Second, <-acquired, float64(10*time.Millisecond))
		assert.Equal(t, "orders", <-woken)
		time.Sleep(time.Minute)
		assert.NotZero(t, renewed.Load())
		locktest.Unlock(t, h)
		assert.InDelta(t, time.Minute, <-released, float64(10*time.Millisecond))
		locktest.Acquire(t, t.Context(), l)
		assert.InDelta(t, 0, <-acquired, float64(time.Millisecond), "a call that did not wait is told of too")
		b.Delete(t, "app:orders")
		assert.Error(t, <-lost)
		assert.Empty(t, released, "a loss is no release")
	})
}
