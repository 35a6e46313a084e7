package ronce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/ronce"
)

// F2
func TestLostRepliesChangeNothing(t *testing.T) {
	for _, when := range []string{"claim", "keep", "release"} {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprint(when, " ", n), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := b.Peer(t)
					for _, err := range []error{errBoom, nil} { // Redis knows the scripts from here on
						<-do(t.Context(), get(p), returns("made", err))
					}
					require.NoError(t, get(p).Forget(t.Context(), "k"))
					var failure error
					if when == "release" {
						failure = errBoom
					}
					if when == "claim" {
						p.LoseReplies(n)
					}
					m := <-do(t.Context(), get(p), func(context.Context) (string, error) {
						if when != "claim" {
							p.LoseReplies(n)
						}
						return "made", failure
					})
					if failure != nil {
						assert.Equal(t, made{err: errBoom}, m)
						free(t, b)
						return
					}
					assert.Equal(t, made{value: "made"}, m)
					kept(t, get(b.Peer(t)), "made")
					time.Sleep(time.Minute) // what was left in the background
					kept(t, get(b.Peer(t)), "made")
					assert.Greater(t, b.TTL(t, redisKey), 23*time.Hour)
				})
			})
		}
	}
}

// F2
func TestForgetIsNotRepeated(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		require.NoError(t, get(p).Forget(t.Context(), "k")) // Redis knows the script from here on
		<-do(t.Context(), get(p), returns("made", nil))
		before := p.Scripts()
		p.LoseReplies(1)
		require.ErrorIs(t, get(p).Forget(t.Context(), "k"), redlatch.ErrUnknown)
		assert.Equal(t, 1, p.Scripts()-before)
		free(t, b)
	})
}

// A value whose write was lost on the way is not reported as kept by the repetition that finds another one's claim, nor does it
// write over it when it arrives.
//
// F2, F25
func TestWriteThatArrivesLateKeepsNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		<-do(t.Context(), get(p), returns("made", nil)) // Redis knows the scripts from here on
		require.NoError(t, get(p).Forget(t.Context(), "k"))
		var second <-chan made
		first := do(t.Context(), get(p), func(context.Context) (string, error) {
			p.Withhold(1)
			b.Delete(t, redisKey)
			second = begin(t.Context(), get(b.Peer(t)), after(time.Minute, "made", nil))
			time.Sleep(time.Second) // it runs
			return "late", nil
		})
		m := <-first
		require.ErrorIs(t, m.err, redlatch.ErrUnknown)
		assert.Equal(t, made{err: m.err}, m)
		assert.Equal(t, 1, p.Deliver(t))
		assert.Equal(t, made{value: "made"}, <-second)
		kept(t, get(p), "made")
	})
}

// F25, F26
func TestSilenceAtTheEndIsUnknownAndSettled(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		start := time.Now()
		m := <-do(t.Context(), get(p), func(context.Context) (string, error) {
			p.Blackhole(true)
			return "made", nil
		})
		require.ErrorIs(t, m.err, redlatch.ErrUnknown)
		assert.Equal(t, made{err: m.err}, m)
		assert.LessOrEqual(t, time.Since(start), 3*time.Second+50*time.Millisecond)
		waits := do(t.Context(), get(b.Peer(t)), never(t))
		p.Blackhole(false)
		assert.Equal(t, made{value: "made", shared: true}, <-waits, "it is kept when Redis answers again, before the lease ends")
	})
}

// The repetition of the write finds nothing: the first one was lost on its way, and the claim with the data of Redis; or it released the
// claim; or its value has expired.
//
// F2, F25
func TestValueThatIsGoneWhenItsWriteIsRepeatedIsUnknown(t *testing.T) {
	for what, c := range map[string]struct {
		opts   []ronce.Option
		before func(t *testing.T, b *locktest.Bubble, p *locktest.Peer)
	}{
		"never written": {before: func(t *testing.T, b *locktest.Bubble, p *locktest.Peer) {
			p.Withhold(1)
			b.Delete(t, redisKey)
		}},
		"forgotten": {before: func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer) {
			assert.NoError(t, get(p).Forget(t.Context(), "k"))
			p.LoseReplies(1)
		}},
		"expired": {
			opts: []ronce.Option{ronce.WithTTL(500 * time.Millisecond)},
			before: func(_ *testing.T, _ *locktest.Bubble, p *locktest.Peer) {
				p.HangReplies(1)
				time.AfterFunc(time.Millisecond, func() { p.Down(true) })
				time.AfterFunc(time.Second, func() { p.Down(false) })
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				<-do(t.Context(), get(p), returns("made", nil)) // Redis knows the scripts from here on
				require.NoError(t, get(p).Forget(t.Context(), "k"))
				m := <-do(t.Context(), get(p, c.opts...), func(context.Context) (string, error) {
					c.before(t, b, p)
					return "made", nil
				})
				require.ErrorIs(t, m.err, redlatch.ErrUnknown)
				assert.Equal(t, made{err: m.err}, m)
				p.Deliver(t)
				free(t, b)
			})
		})
	}
}

// F16
func TestClaimThatIsNotReleasedIsLogged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log strings.Builder // read after Close
		p := b.Peer(t, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		var held []redlatch.HoldInfo
		_, _, err := get(p).Do(t.Context(), "k", func(context.Context) (string, error) {
			held = p.Holds()
			p.Blackhole(true)
			return "", assert.AnError
		})
		require.ErrorIs(t, err, assert.AnError)
		p.Blackhole(false)
		require.NoError(t, p.Close())
		require.Len(t, held, 1)
		assert.Contains(t, log.String(), fmt.Sprintf("level=WARN msg=\"redlatch: a claim was not released\" client=%s kind=once name=%s owner=%s cause=",
			p.ID(), held[0].Name, held[0].Owner))
	})
}

// F16, F27
func TestSilenceIsUnavailable(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		o := get(p)
		_, _, err := o.Peek(t.Context(), "k")
		require.NoError(t, err)
		p.Blackhole(true)
		for what, call := range map[string]func(ctx context.Context) error{
			"do": func(ctx context.Context) error {
				_, _, err := o.Do(ctx, "k", never(t))
				return err
			},
			"peek": func(ctx context.Context) error {
				_, _, err := o.Peek(ctx, "k")
				return err
			},
			"forget": func(ctx context.Context) error { return o.Forget(ctx, "k") },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			start := time.Now()
			err := call(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, what)
			want := redlatch.ErrUnavailable
			if what == "forget" {
				want = redlatch.ErrUnknown
			}
			require.ErrorIs(t, err, want, what)
			assert.LessOrEqual(t, time.Since(start), 350*time.Millisecond, what)
		}
		p.Blackhole(false)
		time.Sleep(time.Minute)
		free(t, b)
	})
}

// F4
func TestLostMessagesCostAboutASecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		first := do(t.Context(), get(b.Peer(t)), after(time.Minute, "made", nil))
		p := b.Peer(t)
		var waits []<-chan made
		for range 10 {
			waits = append(waits, do(t.Context(), get(p), never(t)))
		}
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		require.NoError(t, b.Redis.HSet(t.Context(), redisKey, "kept", "value", "data", "\xa4same").Err()) // without a message
		start := time.Now()
		for _, call := range waits {
			assert.Equal(t, made{value: "same", shared: true}, <-call)
		}
		assert.Less(t, time.Since(start), 2*time.Second)
		<-first
	})
}

// The waiter that finds a value has it for all who wait in its client: they do not ask one after another.
//
// F21
func TestWaitersOfAClientGetTheValueTogether(t *testing.T) {
	t.Parallel()
	const waiters, delay = 50, 50 * time.Millisecond
	server := redistest.Shared(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	connect := func(addr string) *ronce.Once[string] {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return redlatch.GetOnce[string](c, "together", ronce.WithTTL(time.Minute))
	}
	key := fmt.Sprint(time.Now().UnixNano())
	runs, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, _, err := connect(server.Addr()).Do(t.Context(), key, func(context.Context) (string, error) {
			close(runs)
			<-end
			return "made", nil
		})
		assert.NoError(t, err)
	})
	<-runs
	o := connect(proxy.Addr())
	for range waiters {
		all.Go(func() {
			_, shared, err := o.Do(t.Context(), key, never(t))
			assert.NoError(t, err)
			assert.True(t, shared)
		})
	}
	channel := fmt.Sprintf("redlatch_once_channel:8:{together:%s}", key)
	rdb := server.Client(t)
	redistest.Eventually(t, 20*time.Second, "the waiters listen", func() error {
		heard, err := rdb.PubSubNumSub(t.Context(), channel).Result()
		if err == nil && heard[channel] == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	proxy.Delay(delay)
	lag := faulttest.MeasureLag(t, server.Addr())
	start := time.Now()
	close(end)
	all.Wait()
	assert.Less(t, time.Since(start), waiters*delay/2+lag.Late())
}

// F25, F28
func TestFullRedisRefusesTheValueAndFreesTheKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	o := redlatch.GetOnce[string](c, "hook")
	full := func(ctx context.Context) { assert.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err()) }
	isFree := func() error {
		n, err := rdb.Exists(t.Context(), redisKey).Result()
		if err == nil && n > 0 {
			err = errors.New("the key is there")
		}
		return err
	}

	_, _, err = o.Do(t.Context(), "k", func(ctx context.Context) (string, error) {
		full(ctx)
		return "made", nil
	})
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	require.NotErrorIs(t, err, redlatch.ErrUnknown)
	redistest.Eventually(t, 10*time.Second, "it is released while Redis is full", isFree)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())

	value, shared, err := o.Do(t.Context(), "k", func(ctx context.Context) (string, error) {
		full(ctx)
		assert.NoError(t, o.Forget(ctx, "k"), "a full Redis allows it")
		return "old", nil
	})
	require.NoError(t, err)
	assert.False(t, shared)
	assert.Equal(t, "old", value)
	assert.NoError(t, isFree())
}

// Callers in several clients of real servers, with failures among the runs.
func TestEachKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	for where, place := range map[string]locktest.Place{"server": locktest.OnServer, "cluster": locktest.OnCluster} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			place(t, func(t *testing.T, s *locktest.Server) {
				const clients, keys, callers = 3, 20, 4
				name := fmt.Sprint("once ", time.Now().UnixNano())
				var runs, ok [keys]atomic.Int32
				var all sync.WaitGroup
				for range clients {
					o := redlatch.GetOnce[int](s.Client(t), name, ronce.WithTTL(time.Minute))
					for range callers {
						for k := range keys {
							all.Go(func() {
								value, shared, err := o.Do(t.Context(), fmt.Sprint(k), func(context.Context) (int, error) {
									if runs[k].Add(1) == 1 && k%4 == 0 {
										return 0, errBoom
									}
									return k, nil
								})
								if errors.Is(err, errBoom) && err.Error() == errBoom.Error() {
									assert.Equal(t, 0, k%4)
									return
								}
								assert.NoError(t, err)
								assert.Equal(t, k, value)
								if !shared {
									ok[k].Add(1)
								}
							})
						}
					}
				}
				all.Wait()
				for k := range keys {
					assert.EqualValues(t, 1, ok[k].Load(), "key %d", k)
				}
			})
		})
	}
}
