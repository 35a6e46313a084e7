package rlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/redlatch/redlatch/rlatch"
)

// life is what may happen to a latch, step by step. Each step leaves such a count.
var life = []struct {
	name string
	left int
	do   func(t *testing.T, l *rlatch.Latch)
}{
	{"TrySetCount", 9, func(t *testing.T, l *rlatch.Latch) { set(t, l, 9) }},
	{"CountDown", 8, down},
	{"CountDownBy", 5, func(t *testing.T, l *rlatch.Latch) { require.NoError(t, l.CountDownBy(t.Context(), 3)) }},
	{"CountDownOnce", 4, func(t *testing.T, l *rlatch.Latch) { once(t, l, "a", true) }},
	{"CountDownOnce again", 4, func(t *testing.T, l *rlatch.Latch) { once(t, l, "a", false) }},
	{"Count", 4, func(t *testing.T, l *rlatch.Latch) { requireCount(t, l, 4) }},
	{"Delete", 0, func(t *testing.T, l *rlatch.Latch) {
		gone, err := l.Delete(t.Context())
		require.NoError(t, err)
		require.True(t, gone)
	}},
	{"TrySetCountOnce", 3, func(t *testing.T, l *rlatch.Latch) { setOnce(t, l, 3, true) }},
	{"TrySetCountOnce again", 3, func(t *testing.T, l *rlatch.Latch) { setOnce(t, l, 3, false) }},
	{"CountDownOnce of another use", 2, func(t *testing.T, l *rlatch.Latch) { once(t, l, "a", true) }},
	{"CountDownBy that opens", 0, func(t *testing.T, l *rlatch.Latch) { require.NoError(t, l.CountDownBy(t.Context(), 3)) }},
	{"TrySetCountOnce of an open one", 0, func(t *testing.T, l *rlatch.Latch) { setOnce(t, l, 3, false) }},
	{"AwaitSet", 0, func(t *testing.T, l *rlatch.Latch) { require.NoError(t, l.AwaitSet(t.Context())) }},
	{"Await", 0, func(t *testing.T, l *rlatch.Latch) { require.NoError(t, l.Await(t.Context())) }},
}

func setOnce(t *testing.T, l *rlatch.Latch, n int, want bool) {
	t.Helper()
	set, err := l.TrySetCountOnce(t.Context(), n, time.Hour)
	require.NoError(t, err)
	require.Equal(t, want, set)
}

func once(t *testing.T, l *rlatch.Latch, participant string, want bool) {
	t.Helper()
	counted, err := l.CountDownOnce(t.Context(), participant)
	require.NoError(t, err)
	require.Equal(t, want, counted)
}

// count reads a latch past everything.
func count(t *testing.T, rdb *redis.Client, name string) int {
	t.Helper()
	n, err := rdb.Get(t.Context(), name).Int()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	require.NoError(t, err)
	return n
}

// F2
func TestLostReplyChangesNoOutcome(t *testing.T) {
	for sick, step := range life {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s, %d lost", step.name, n), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := b.Peer(t)
					for i, step := range life {
						if i == sick {
							p.LoseReplies(n)
						}
						step.do(t, p.GetCountDownLatch("n"))
						require.Equal(t, step.left, count(t, b.Redis, "n"), step.name)
					}
					p.LoseReplies(0)
				})
			})
		}
	}
}

// F2
func TestLostRepliesHideNoWrongType(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		require.NoError(t, b.Redis.Set(t.Context(), "word", "word", 0).Err())
		require.NoError(t, b.Redis.HSet(t.Context(), "hash", "a", "b").Err())
		for n := 1; n <= 4; n++ {
			for _, name := range []string{"word", "hash"} {
				for verb, call := range calls {
					p.LoseReplies(n)
					require.ErrorIs(t, call(t.Context(), p.GetCountDownLatch(name)), redlatch.ErrWrongType, "%s of a %s, %d lost", verb, name, n)
				}
			}
		}
		p.LoseReplies(0)
	})
}

// F2
func TestRandomLostRepliesCountExactly(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		peers := []*locktest.Peer{b.Peer(t), b.Peer(t)}
		for round := range faulttest.Rounds(t, 20, 200) {
			name := fmt.Sprint("n", round)
			set(t, peers[0].GetCountDownLatch(name), 100_000)
			var mu sync.Mutex // guards counted, seen
			counted, seen := 0, map[string]bool{}
			var workers sync.WaitGroup
			for i := range 6 {
				l := peers[i%2].GetCountDownLatch(name)
				peers[i%2].LoseReplies(rand.N(4))
				workers.Go(func() {
					for range 20 {
						n, who := 1+rand.N(3), fmt.Sprint(rand.N(30))
						if rand.N(2) == 0 {
							if !assert.NoError(t, l.CountDownBy(t.Context(), n)) {
								return
							}
							mu.Lock()
							counted += n
							mu.Unlock()
							continue
						}
						first, err := l.CountDownOnce(t.Context(), who)
						if !assert.NoError(t, err) {
							return
						}
						mu.Lock()
						if first {
							counted++
							assert.False(t, seen[who], "%s counts once", who)
						}
						seen[who] = seen[who] || first
						mu.Unlock()
					}
				})
			}
			workers.Wait()
			peers[0].LoseReplies(0)
			peers[1].LoseReplies(0)
			require.Equal(t, 100_000-counted, count(t, b.Redis, name))
		}
	})
}

// clientThrough returns a client of the server at addr.
func clientThrough(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	c, err := redlatch.New(rdb, append([]redlatch.Option{quiet}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// F2
func TestLostRepliesOnServer(t *testing.T) {
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	c, rdb := clientThrough(t, proxy.Addr()), server.Client(t)
	for i := range life {
		for n := 1; n <= 4; n++ {
			l := c.GetCountDownLatch(fmt.Sprintf("n-%d-%d", i, n))
			for j, step := range life {
				if j == i {
					proxy.DropReply(faulttest.Script, n)
				}
				step.do(t, l)
				require.Equal(t, step.left, count(t, rdb, l.Name()), "%s, reply %d lost", step.name, n)
			}
		}
	}
	require.Positive(t, proxy.Dropped())
}

// F4
func TestWaitersGoOnWithoutMessages(t *testing.T) {
	server := redistest.Start(t)
	proxy, lag := faulttest.NewProxy(t, server.Addr()), faulttest.MeasureLag(t, server.Addr())
	proxy.DropMessages(true)
	direct := clientThrough(t, server.Addr()).GetCountDownLatch("n")
	set(t, direct, 2)
	var waiting []<-chan error
	for range 10 {
		l := clientThrough(t, proxy.Addr()).GetCountDownLatch("n")
		for range faulttest.Rounds(t, 10, 50) {
			waiting = append(waiting, begin(t.Context(), l))
		}
	}
	redistest.AwaitSubscribers(t, server.Client(t), "redisson_countdownlatch__channel__{n}", 10)
	down(t, direct)
	for _, w := range waiting {
		waits(t, w)
	}
	down(t, direct)
	start := time.Now()
	for _, w := range waiting {
		require.NoError(t, ended(t, w))
	}
	require.Less(t, time.Since(start), recheck+250*time.Millisecond+lag.Late())
}

// F4
func TestLostSubscriptionLosesNoZero(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetCountDownLatch("n")
		for range 10 {
			set(t, l, 1)
			waiting := begin(t.Context(), l)
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, b.Redis.Del(t.Context(), "n").Err()) // without a message
			p.Cut()
			start := time.Now()
			require.NoError(t, ended(t, waiting))
			require.Less(t, time.Since(start), recheck)
		}
	})
}

// F16
func TestCallsEndWithTheirContextAndRecover(t *testing.T) {
	server := redistest.Start(t)
	proxy, lag := faulttest.NewProxy(t, server.Addr()), faulttest.MeasureLag(t, server.Addr())
	c := clientThrough(t, proxy.Addr(), redlatch.WithCloseGrace(0))
	for verb, call := range calls {
		l := c.GetCountDownLatch("f16 " + verb)
		set(t, l, 9)
		proxy.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		err := call(ctx, l)
		cancel()
		require.Less(t, time.Since(start), 600*time.Millisecond+lag.Late(), verb)
		require.ErrorIs(t, err, context.DeadlineExceeded, verb)
		proxy.Blackhole(false)
		work, cancel := context.WithTimeout(t.Context(), limit)
		_, err = l.Delete(work)
		require.NoError(t, err, verb)
		require.NoError(t, l.Await(work), verb)
		cancel()
	}
	open := c.GetCountDownLatch("f16")
	set(t, open, 1)
	waiting := begin(context.WithoutCancel(t.Context()), open)
	proxy.Blackhole(true)
	start := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(start), 3*time.Second+500*time.Millisecond+lag.Late())
	require.ErrorIs(t, ended(t, waiting), redlatch.ErrClosed)
	proxy.Blackhole(false)
}

// F22
func TestAllWaitersOfTenClientsReturn(t *testing.T) {
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	lag := faulttest.MeasureLag(t, server.Addr())
	first := clientThrough(t, server.Addr()).GetCountDownLatch("n")
	set(t, first, 3)
	var waiting sync.WaitGroup
	each := faulttest.Rounds(t, 50, 200)
	released := make(chan time.Time, 10*each) // room for all
	for range 10 {
		l := clientThrough(t, server.Addr()).GetCountDownLatch("n")
		for range each {
			waiting.Go(func() {
				assert.NoError(t, l.Await(t.Context()))
				released <- time.Now()
			})
		}
	}
	rdb := server.Client(t)
	redistest.AwaitSubscribers(t, rdb, "redisson_countdownlatch__channel__{n}", 10)
	down(t, first)
	require.NoError(t, first.CountDownBy(t.Context(), 2))
	start := time.Now()
	waiting.Wait()
	close(released)
	var last time.Time
	for at := range released {
		if at.After(last) {
			last = at
		}
	}
	t.Logf("%d waiters in 10 clients went on within %v", 10*each, last.Sub(start))
	require.Less(t, last.Sub(start), 700*time.Millisecond+lag.Late(), "sooner than by a look")
}
