package rcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

const redisKey = "redlatch_cache:5:{users:k}" // of the key k

var errBoom = errors.New("boom")

type cache = rcache.Cache[string, string]

// source is what loaders read: a value that takes a second to read.
type source struct {
	mu      sync.Mutex // guards value, err
	value   string
	err     error
	slow    time.Duration // how much longer it takes
	loads   atomic.Int32
	running atomic.Int32
}

func (s *source) set(value string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.err = value, err
}

// load reads the value first, and takes its time then: what is read may be old when it is returned.
func (s *source) load(ctx context.Context, _ string) (string, error) {
	s.loads.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	s.mu.Lock()
	value, err := s.value, s.err
	s.mu.Unlock()
	select {
	case <-time.After(time.Second + s.slow):
		return value, err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *source) of(p *locktest.Peer, opts ...rcache.Option) *cache {
	return rcache.New[string, string](p.Client, "users", s.load, opts...)
}

// got is what a call of Get returned.
type got struct {
	value string
	err   error
}

// get begins a call, which has begun to wait when it returns.
func get(ctx context.Context, c *cache) <-chan got {
	done := make(chan got, 1)
	go func() {
		v, err := c.Get(ctx, "k")
		done <- got{v, err}
	}()
	synctest.Wait()
	return done
}

func requireGet(t *testing.T, c *cache, want string) {
	t.Helper()
	v, err := c.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, want, v)
}

// requireKept requires that a value is kept; none if it is empty.
func requireKept(t *testing.T, c *cache, want string) {
	t.Helper()
	v, ok, err := c.Peek(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, want != "", ok)
	require.Equal(t, want, v)
}

// requireShared requires the failure of a load that was waited for.
func requireShared(t *testing.T, want string, err error) {
	t.Helper()
	var failure *rcache.LoadError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, want, failure.Text)
}

// F31
func TestStampedeLoadsOnce(t *testing.T) {
	for name, opts := range map[string][]rcache.Option{"plain": nil, "near": {rcache.WithNear(100)}} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := &source{value: "ann"}
				var all sync.WaitGroup
				start := time.Now()
				caches := []*cache{s.of(b.Peer(t), opts...), s.of(b.Peer(t), opts...), s.of(b.Peer(t), opts...)}
				for i := range 1000 {
					all.Go(func() {
						v, err := caches[i%3].Get(t.Context(), "k")
						assert.NoError(t, err)
						assert.Equal(t, "ann", v)
					})
				}
				all.Wait()
				assert.EqualValues(t, 1, s.loads.Load())
				assert.Equal(t, time.Second, time.Since(start), "they are woken")
				var sum rcache.Stats
				for _, c := range caches {
					sum.Loads += c.Stats().Loads
					sum.Misses += c.Stats().Misses
				}
				assert.Equal(t, rcache.Stats{Loads: 1, Misses: 1000}, sum)
			})
		})
	}
}

func TestValueIsKeptForItsTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for ttl, opts := range map[time.Duration][]rcache.Option{10 * time.Minute: nil, time.Minute: {rcache.WithTTL(time.Minute)}} {
			s := &source{value: "ann"}
			p := b.Peer(t)
			c := s.of(p, opts...)
			requireGet(t, c, "ann")
			assert.Equal(t, ttl, b.TTL(t, redisKey))
			before := p.Scripts()
			requireGet(t, c, "ann")
			assert.Equal(t, 1, p.Scripts()-before)
			assert.EqualValues(t, 1, s.loads.Load())
			time.Sleep(ttl)
			assert.Empty(t, b.Keys(t))
			requireKept(t, c, "")
			requireGet(t, c, "ann")
			assert.EqualValues(t, 2, s.loads.Load())
			require.NoError(t, c.Invalidate(t.Context(), "k"))
			assert.Empty(t, b.Keys(t))
		}
	})
}

func TestLoaderDecidesHowLongItsValueIsKept(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, d := b.Peer(t), time.Minute
		rcache.KeepFor(t.Context(), d) // changes nothing
		var failure error
		c := rcache.New(p.Client, "users", func(ctx context.Context, _ string) (string, error) {
			rcache.KeepFor(ctx, d)
			return "ann", failure
		})
		requireGet(t, c, "ann")
		assert.Equal(t, d, b.TTL(t, redisKey))
		require.NoError(t, c.Invalidate(t.Context(), "k"))
		failure = rcache.ErrNotFound
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, rcache.ErrNotFound)
		assert.Equal(t, d, b.TTL(t, redisKey))
		require.NoError(t, c.Invalidate(t.Context(), "k"))
		for _, bad := range []time.Duration{-time.Second, 0, time.Millisecond, 11 * 365 * 24 * time.Hour} {
			d = bad
			for _, failure = range []error{nil, rcache.ErrNotFound} {
				_, err = c.Get(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrInvalid)
				requireKept(t, c, "")
			}
		}
	})
}

func TestMissIsKeptForItsTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{err: fmt.Errorf("no row: %w", rcache.ErrNotFound)}
		caches := []*cache{s.of(b.Peer(t)), s.of(b.Peer(t))}
		for _, c := range append(caches, caches...) {
			_, err := c.Get(t.Context(), "k")
			require.ErrorIs(t, err, rcache.ErrNotFound)
			requireKept(t, c, "")
		}
		assert.EqualValues(t, 1, s.loads.Load())
		assert.Zero(t, caches[0].Stats().Failures)
		time.Sleep(10 * time.Second)
		s.set("ann", nil)
		requireGet(t, caches[0], "ann")
	})
}

// F31
func TestFailureIsSharedAndNotKept(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{err: errBoom}
		caches := []*cache{s.of(b.Peer(t)), s.of(b.Peer(t)), s.of(b.Peer(t))}
		first := get(t.Context(), caches[0])
		var waiting []<-chan got
		for i := range 9 {
			waiting = append(waiting, get(t.Context(), caches[i%3]))
		}
		g := <-first
		require.ErrorIs(t, g.err, errBoom)
		require.EqualError(t, g.err, `rcache: get "users": boom`)
		start := time.Now()
		for _, w := range waiting {
			requireShared(t, "boom", (<-w).err)
		}
		assert.Zero(t, time.Since(start), "nobody runs in turn")
		assert.EqualValues(t, 1, s.loads.Load())
		assert.EqualValues(t, 1, caches[0].Stats().Failures)

		requireKept(t, caches[1], "")
		s.set("ann", nil)
		requireGet(t, caches[1], "ann")
		assert.EqualValues(t, 2, s.loads.Load())
	})
}

func TestFailureIsKeptIfAsked(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{err: errors.New(strings.Repeat("é", 3<<10))}
		c, other := s.of(b.Peer(t), rcache.WithErrors(time.Minute)), s.of(b.Peer(t))
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, s.err)
		for range 2 {
			_, err = other.Get(t.Context(), "k")
			requireShared(t, strings.Repeat("é", 2<<10), err)
			_, ok, err := other.Peek(t.Context(), "k")
			requireShared(t, strings.Repeat("é", 2<<10), err)
			assert.False(t, ok)
		}
		assert.EqualValues(t, 1, s.loads.Load())
		assert.Equal(t, time.Minute, b.TTL(t, redisKey))
		time.Sleep(time.Minute)
		s.set("ann", nil)
		requireGet(t, other, "ann")
	})
}

// F31
func TestInvalidateBeatsTheLoadUnderWay(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		c, other := s.of(b.Peer(t)), s.of(b.Peer(t))
		first := get(t.Context(), c)
		waits := get(t.Context(), other)
		s.set("new", nil)
		require.NoError(t, other.Invalidate(t.Context(), "k"))
		after := get(t.Context(), other)
		assert.Equal(t, got{value: "old"}, <-first, "it asked before")
		assert.Equal(t, got{value: "new"}, <-waits, "it asks again")
		assert.Equal(t, got{value: "new"}, <-after)
		assert.EqualValues(t, 2, s.loads.Load())
		requireKept(t, c, "new")
	})
}

func TestSetBeatsTheLoadUnderWay(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "loaded"}
		c, other := s.of(b.Peer(t)), s.of(b.Peer(t))
		first := get(t.Context(), c)
		waits := get(t.Context(), other)
		start := time.Now()
		require.NoError(t, other.Set(t.Context(), "k", "set"))
		assert.Equal(t, got{value: "set"}, <-waits)
		assert.Zero(t, time.Since(start), "they are woken")
		requireGet(t, other, "set")
		assert.Equal(t, got{value: "loaded"}, <-first)
		requireKept(t, c, "set")
		assert.Equal(t, 10*time.Minute-time.Second, b.TTL(t, redisKey))
		assert.EqualValues(t, 1, s.loads.Load())
	})
}

func TestOldValueIsReturnedWhileOneRefreshesIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		var caches []*cache
		for i := range 3 {
			caches = append(caches, s.of(b.Peer(t), rcache.WithRefresh(time.Minute), rcache.WithNear(10*i)))
		}
		for _, c := range caches {
			requireGet(t, c, "old")
		}
		s.set("new", nil)
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		start := time.Now()
		for i := range 300 {
			all.Go(func() {
				v, err := caches[i%3].Get(t.Context(), "k")
				assert.NoError(t, err)
				assert.Equal(t, "old", v)
			})
		}
		all.Wait()
		assert.Zero(t, time.Since(start))
		time.Sleep(1500 * time.Millisecond)
		for _, c := range caches {
			requireGet(t, c, "new")
		}
		assert.EqualValues(t, 2, s.loads.Load())
		assert.Equal(t, 10*time.Minute-500*time.Millisecond, b.TTL(t, redisKey))
	})
}

func TestRefreshThatFailsLeavesTheValueAndIsTriedAgainAfterASecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		c := s.of(b.Peer(t), rcache.WithTTL(10*time.Second), rcache.WithRefresh(5*time.Second), rcache.WithErrors(time.Minute))
		requireGet(t, c, "old")
		s.set("", errBoom)
		time.Sleep(5 * time.Second) // since it was kept
		for range 35 {              // tries from 0 to 1 s, and from 2 to 3 s
			requireGet(t, c, "old")
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.EqualValues(t, 3, s.loads.Load())
		assert.EqualValues(t, 2, c.Stats().Failures)
		time.Sleep(10 * time.Second)
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, errBoom, "at its end callers wait")
	})
}

func TestValueWhoseTimeEndsDuringItsRefreshIsWaitedFor(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		c, other := s.of(b.Peer(t), rcache.WithTTL(5*time.Second), rcache.WithRefresh(4500*time.Millisecond)), s.of(b.Peer(t))
		requireGet(t, c, "old")
		s.set("new", nil)
		time.Sleep(4500 * time.Millisecond)
		requireGet(t, c, "old")
		time.Sleep(500 * time.Millisecond)
		requireGet(t, other, "new")
		assert.EqualValues(t, 2, s.loads.Load())
	})
}

func TestCallerLeavesAndTheLoadGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		type key struct{}
		s := &source{value: "ann"}
		c := rcache.New(b.Peer(t).Client, "users", func(ctx context.Context, k string) (string, error) {
			assert.Equal(t, "value", ctx.Value(key{}), "it has its caller's values")
			return s.load(ctx, k)
		})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		first := get(ctx, c)
		cancel()
		synctest.Wait()
		g := <-first
		require.ErrorIs(t, g.err, context.Canceled)
		requireGet(t, c, "ann")
		assert.EqualValues(t, 1, s.loads.Load())
	})
}

func TestLoadTimeoutEndsTheContextOfALoad(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "ann"}
		c := s.of(b.Peer(t), rcache.WithLoadTimeout(100*time.Millisecond))
		first := get(t.Context(), c)
		waits := get(t.Context(), s.of(b.Peer(t)))
		require.ErrorIs(t, (<-first).err, context.DeadlineExceeded)
		requireShared(t, "context deadline exceeded", (<-waits).err)

		// One that goes on for a second more loses its claim.
		stuck := make(chan struct{})
		deaf := rcache.New(b.Peer(t).Client, "users", func(context.Context, string) (string, error) {
			<-stuck
			return "late", nil
		}, rcache.WithLoadTimeout(100*time.Millisecond))
		first = get(t.Context(), deaf)
		start := time.Now()
		requireGet(t, s.of(b.Peer(t)), "ann")
		assert.InDelta(t, 2100*time.Millisecond, time.Since(start), float64(50*time.Millisecond))
		close(stuck)
		assert.Equal(t, got{value: "late"}, <-first)
		requireKept(t, c, "ann")
	})
}

func TestPanicGoesOnInTheCallerAndIsSharedAsAFailure(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "ann"}
		c, other := rcache.New(b.Peer(t).Client, "users", func(context.Context, string) (string, error) {
			time.Sleep(time.Second)
			panic("boom")
		}), s.of(b.Peer(t))
		waits := make(chan error, 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			_, err := other.Get(t.Context(), "k")
			waits <- err
		}()
		require.PanicsWithValue(t, "boom", func() { _, _ = c.Get(t.Context(), "k") })
		requireShared(t, "panic: boom", <-waits)
		require.PanicsWithValue(t, "boom", func() { _, _ = c.GetAll(t.Context(), []string{"a", "b"}) })

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			exits := rcache.New(b.Peer(t).Client, "users", func(context.Context, string) (string, error) {
				runtime.Goexit()
				return "", nil
			})
			_, _ = exits.Get(t.Context(), "x")
			assert.Fail(t, "its goroutine has ended")
		}()
		<-ended
		requireGet(t, s.of(b.Peer(t)), "ann")
	})
}

func TestLostClaimIsFenced(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		slow := rcache.New(b.Peer(t).Client, "users", func(context.Context, string) (string, error) {
			time.Sleep(20 * time.Second)
			return "slow", nil
		})
		first := get(t.Context(), slow)
		b.Delete(t, redisKey)
		c := s.of(b.Peer(t))
		requireGet(t, c, "old")
		assert.Equal(t, got{value: "slow"}, <-first)
		requireKept(t, c, "old")

		require.NoError(t, c.Invalidate(t.Context(), "k"))
		heeds := rcache.New(b.Peer(t).Client, "users", func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}, rcache.WithLoadTimeout(time.Hour))
		first = get(t.Context(), heeds)
		b.Delete(t, redisKey)
		g := <-first
		require.ErrorIs(t, g.err, rlock.ErrLost)
	})
}

func TestCloseEndsLoadsAndWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "ann"}
		p, other := b.Peer(t), b.Peer(t)
		c := s.of(p)
		first, waits := get(t.Context(), c), get(t.Context(), c)
		elsewhere := get(t.Context(), s.of(other))
		start := time.Now()
		require.NoError(t, p.Close())
		assert.Zero(t, time.Since(start))
		require.ErrorIs(t, (<-first).err, redlatch.ErrClosed)
		require.ErrorIs(t, (<-waits).err, redlatch.ErrClosed)
		assert.Equal(t, got{value: "ann"}, <-elsewhere, "the end of a client is nobody else's failure")
		_, err := c.Get(t.Context(), "k")
		require.EqualError(t, err, `rcache: get "users": client closed`)
	})
}

func TestLoaderThatAsksForItsOwnKeyIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var a, other *cache
		a = rcache.New(p.Client, "a", func(ctx context.Context, k string) (string, error) { return other.Get(ctx, k) })
		other = rcache.New(p.Client, "b", func(ctx context.Context, k string) (string, error) {
			if k == "deep" {
				return other.Get(ctx, "k")
			}
			return a.Get(ctx, k)
		})
		_, err := a.Get(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorContains(t, err, "its own key")
	})
}

func TestGetAllAsksTogetherAndLoadsWhatIsMissing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var running, most, loads atomic.Int32
		c := rcache.New(p.Client, "users", func(_ context.Context, id int) (string, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			loads.Add(1)
			time.Sleep(time.Second)
			switch {
			case id == 100:
				return "", errBoom
			case id%10 == 9:
				return "", rcache.ErrNotFound
			}
			return fmt.Sprint("user ", id), nil
		}, rcache.WithNear(100))
		want := map[int]string{}
		ids := []int{3, 3}
		for id := range 32 {
			ids = append(ids, id)
			if id%10 != 9 {
				want[id] = fmt.Sprint("user ", id)
			}
		}
		start := time.Now()
		all, err := c.GetAll(t.Context(), ids)
		require.NoError(t, err)
		assert.Equal(t, want, all)
		assert.Equal(t, 4*time.Second, time.Since(start), "eight at a time")
		assert.EqualValues(t, 8, most.Load())
		assert.EqualValues(t, 32, loads.Load())
		for range 2 {
			all, err = c.GetAll(t.Context(), ids)
			require.NoError(t, err)
			assert.Equal(t, want, all)
		}
		assert.EqualValues(t, 32, loads.Load())
		assert.GreaterOrEqual(t, c.Stats().NearHits, uint64(29))

		all, err = c.GetAll(t.Context(), []int{1, 100})
		require.ErrorIs(t, err, errBoom)
		assert.Nil(t, all)
		all, err = c.GetAll(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, all)
	})
}

func TestValueThatCannotBeDecodedIsLoadedAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		texts := rcache.New[string, string](p.Client, "users", nil)
		c := rcache.New(p.Client, "users", func(context.Context, string) (int, error) { return 7, nil })
		require.NoError(t, texts.Set(t.Context(), "k", "ann"))
		_, ok, err := c.Peek(t.Context(), "k")
		require.NoError(t, err)
		assert.False(t, ok)
		n, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, 7, n)

		// Also by those who waited for it.
		require.NoError(t, c.Invalidate(t.Context(), "k"))
		s := &source{value: "ann"}
		first := get(t.Context(), s.of(b.Peer(t)))
		n, err = c.Get(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, 7, n)
		assert.Equal(t, got{value: "ann"}, <-first)
	})
}

func TestCacheWithoutALoaderIsAMapWithLifetimes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := rcache.New[string, string](b.Peer(t).Client, "users", nil, rcache.WithTTL(time.Minute), rcache.WithFailOpen())
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, rcache.ErrNotFound)
		require.NoError(t, c.Set(t.Context(), "k", "ann"))
		requireGet(t, c, "ann")
		assert.Equal(t, redisKey, c.Key("k"))
		time.Sleep(time.Minute)
		_, err = c.Get(t.Context(), "k")
		require.EqualError(t, err, `rcache: get "users": not found`)
		assert.Empty(t, b.Keys(t))
	})
}

func TestNearValuesEndWithChanges(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		p := b.Peer(t)
		c, other := s.of(p, rcache.WithNear(10)), s.of(b.Peer(t), rcache.WithNear(0))
		requireGet(t, c, "old")
		requireGet(t, c, "old") // which is near from here on
		before := p.Scripts()
		requireGet(t, c, "old")
		assert.Zero(t, p.Scripts()-before)
		assert.EqualValues(t, 1, c.Stats().NearHits)

		require.NoError(t, other.Set(t.Context(), "k", "set"))
		synctest.Wait()
		requireGet(t, c, "set")
		requireGet(t, c, "set")
		s.set("new", nil)
		require.NoError(t, c.Invalidate(t.Context(), "k"))
		requireGet(t, c, "new")
		requireGet(t, c, "new")
		require.NoError(t, other.Invalidate(t.Context(), "k"))
		synctest.Wait()
		s.set("newer", nil)
		requireGet(t, c, "newer")

		// Never beyond the value's own time.
		requireGet(t, c, "newer")
		b.Delete(t, redisKey)
		requireGet(t, c, "newer")
		s.set("newest", nil)
		time.Sleep(30 * time.Second)
		requireGet(t, c, "newest")
		assert.Zero(t, other.Stats().NearHits)
	})
}

// F31
func TestFailOpenLoadsOnceInEachProcess(t *testing.T) {
	for _, how := range []string{"refused", "silent"} {
		t.Run(how, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := &source{value: "ann"}
				p := b.Peer(t)
				c, closed := s.of(p, rcache.WithFailOpen()), s.of(p)
				requireGet(t, c, "ann")
				if how == "refused" {
					p.Down(true)
				} else {
					p.Blackhole(true)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				_, err := closed.Get(ctx, "k")
				require.ErrorIs(t, err, redlatch.ErrUnavailable)

				var all sync.WaitGroup
				start := time.Now()
				for range 100 {
					all.Go(func() {
						v, err := c.Get(t.Context(), "k")
						assert.NoError(t, err)
						assert.Equal(t, "ann", v)
					})
				}
				all.Wait()
				assert.LessOrEqual(t, time.Since(start), 2*time.Second)
				assert.EqualValues(t, 2, s.loads.Load())
				requireGet(t, c, "ann")
				time.Sleep(2 * time.Second)
				s.set("", errBoom)
				s.slow = 5 * time.Second // the two need not give up Redis at the same time
				first, second := get(t.Context(), c), get(t.Context(), c)
				errs := []error{(<-first).err, (<-second).err}
				s.slow = 0
				assert.EqualValues(t, 3, s.loads.Load())
				require.ErrorIs(t, errors.Join(errs...), errBoom)
				requireShared(t, "boom", errors.Join(errs...))
				s.set("new", nil)
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				all2, err := c.GetAll(ctx, []string{"k", "l"})
				require.NoError(t, err)
				assert.Equal(t, map[string]string{"k": "new", "l": "new"}, all2)
				p.Down(false)
				p.Blackhole(false)
			})
		})
	}
}

func TestFailOpenDoesNotWaitForLongForRedisThatIsLostMeanwhile(t *testing.T) {
	for _, how := range []string{"refused", "silent"} {
		for _, whose := range []string{"own", "foreign"} {
			t.Run(how+" "+whose, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s, slow := &source{value: "ann"}, &source{value: "old", slow: 20 * time.Second}
					p := b.Peer(t)
					c := s.of(p, rcache.WithFailOpen())
					var other <-chan got
					if whose == "foreign" {
						other = get(t.Context(), slow.of(b.Peer(t)))
					}
					var waits []<-chan got
					for range 10 {
						waits = append(waits, get(t.Context(), c))
					}
					time.Sleep(500 * time.Millisecond)
					lost := time.Now()
					if how == "refused" {
						p.Down(true)
					} else {
						p.Blackhole(true)
					}
					for i, w := range waits {
						assert.Equal(t, got{value: "ann"}, <-w)
						if i == 0 && whose == "own" {
							assert.LessOrEqual(t, time.Since(lost), 1500*time.Millisecond, "it had half a second to load")
						}
					}
					assert.LessOrEqual(t, time.Since(lost), 3*time.Second, "it takes a second to load")
					p.Down(false)
					p.Blackhole(false)
					if other != nil {
						assert.Equal(t, got{value: "old"}, <-other)
					}
				})
			})
		}
	}
}

func TestFailOpenWaitsForALoadWhileRedisAnswers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		slow := &source{value: "ann", slow: 20 * time.Second}
		first := get(t.Context(), slow.of(b.Peer(t)))
		requireGet(t, slow.of(b.Peer(t), rcache.WithFailOpen()), "ann")
		assert.Equal(t, got{value: "ann"}, <-first)
		assert.EqualValues(t, 1, slow.loads.Load())
	})
}

func TestBadInputIsRefusedBeforeIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		calls := func(c *cache, k string) map[string]error {
			_, get := c.Get(t.Context(), k)
			_, all := c.GetAll(t.Context(), []string{"good", k})
			_, _, peek := c.Peek(t.Context(), k)
			return map[string]error{
				"get": get, "get all": all, "peek": peek, "set": c.Set(t.Context(), k, "v"), "invalidate": c.Invalidate(t.Context(), k),
			}
		}
		s := &source{}
		for what, name := range locktest.BadNames() {
			for verb, err := range calls(rcache.New[string, string](p.Client, name, s.load), "k") {
				require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %s", verb, what)
			}
		}
		for _, opt := range []rcache.Option{
			nil, rcache.WithTTL(time.Millisecond), rcache.WithTTL(11 * 365 * 24 * time.Hour), rcache.WithMissTTL(0), rcache.WithErrors(0),
			rcache.WithRefresh(0), rcache.WithRefresh(11 * time.Minute), rcache.WithLoadTimeout(0), rcache.WithMaxStale(0),
			rcache.WithNear(-1), rcache.WithNear(1 << 25), rcache.WithParallel(0), rcache.WithParallel(1001), rcache.WithCodec(nil), rcache.WithKeyCodec(nil),
		} {
			for verb, err := range calls(s.of(p, opt), "k") {
				require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
			}
		}
		for _, k := range []string{"", strings.Repeat("k", 513)} {
			for verb, err := range calls(s.of(p), k) {
				require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
			}
			assert.Empty(t, s.of(p).Key(k))
		}
		require.ErrorIs(t, s.of(p).Set(t.Context(), "k", strings.Repeat("v", 1<<20)), redlatch.ErrInvalid)
		bad := rcache.New[string, func()](p.Client, "users", nil)
		require.ErrorIs(t, bad.Set(t.Context(), "k", func() {}), redlatch.ErrInvalid)
		_, hidden := rcache.New[struct{ a int }, int](p.Client, "c", nil).Get(t.Context(), struct{ a int }{1})
		require.ErrorContains(t, hidden, "invalid argument: the key has the field a: JSON leaves it out")
		for _, c := range []*cache{s.of(p), s.of(p, rcache.WithNear(1), rcache.WithFailOpen())} {
			_, err := c.Get(nil, "k") //nolint:staticcheck // what it is about
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			_, err = c.GetAll(nil, nil) //nolint:staticcheck // as above
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			require.ErrorIs(t, c.Invalidate(nil), redlatch.ErrInvalid) //nolint:staticcheck // as above
		}
		assert.Zero(t, p.Scripts())

		big := rcache.New(p.Client, "users", func(context.Context, string) (string, error) { return strings.Repeat("v", 1<<20), nil })
		_, err := big.Get(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		requireKept(t, big, "")
	})
}

// F2
func TestLostRepliesOfACacheChangeNothing(t *testing.T) {
	for _, when := range []string{"read", "claim", "keep", "fail", "invalidate"} {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprint(when, " ", n), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := &source{err: errBoom}
					p := b.Peer(t)
					warm := s.of(p)
					_, err := warm.Get(t.Context(), "w") // Redis knows the scripts from here on
					require.ErrorIs(t, err, errBoom)
					s.set("ann", nil)
					require.NoError(t, warm.Invalidate(t.Context(), "w"))
					lost := func() { p.LoseReplies(n) }
					c := rcache.New(p.Client, "users", func(ctx context.Context, k string) (string, error) {
						if when == "keep" || when == "fail" {
							lost()
						}
						if when == "fail" {
							return "", errBoom
						}
						return s.load(ctx, k)
					})
					switch when {
					case "read":
						lost()
					case "claim":
						p.LoseReplies(0)
						lost()
					}
					v, err := c.Get(t.Context(), "k")
					if when == "fail" {
						require.ErrorIs(t, err, errBoom)
						time.Sleep(time.Minute)
						requireKept(t, c, "")
						return
					}
					require.NoError(t, err)
					require.Equal(t, "ann", v)
					if when == "invalidate" {
						lost()
						require.NoError(t, c.Invalidate(t.Context(), "k"))
						requireKept(t, c, "")
						return
					}
					requireKept(t, s.of(b.Peer(t)), "ann")
					time.Sleep(time.Minute) // what was left in the background
					requireKept(t, s.of(b.Peer(t)), "ann")
				})
			})
		}
	}
}

func TestSetIsSentOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		c := rcache.New[string, string](p.Client, "users", nil, rcache.WithCodec(codec.Text{}))
		require.NoError(t, c.Set(t.Context(), "k", "ann"))
		before := p.Scripts()
		p.LoseReplies(1)
		require.ErrorIs(t, c.Set(t.Context(), "k", "bob"), redlatch.ErrUnknown)
		assert.Equal(t, 1, p.Scripts()-before)
		requireKept(t, c, "bob")
		assert.Equal(t, "bob", b.Hash(t, redisKey)["data"])
	})
}

// F33
func TestKeysOfAnotherKindStay(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "ann"}
		c := s.of(b.Peer(t), rcache.WithNear(1))
		require.NoError(t, b.Redis.Set(t.Context(), redisKey, "x", 0).Err())
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		require.ErrorIs(t, c.Set(t.Context(), "k", "v"), redlatch.ErrWrongType)
		require.ErrorIs(t, c.Invalidate(t.Context(), "k"), redlatch.ErrWrongType)
		assert.Equal(t, "x", b.Redis.Get(t.Context(), redisKey).Val())
		assert.Zero(t, s.loads.Load())
	})
}

func TestFailureThatNobodyReceivesIsLogged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log bytes.Buffer
		plain := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "client" {
				return slog.Attr{}
			}
			return a
		}
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: plain}))
		s := &source{value: "ann"}
		c := s.of(b.Peer(t, redlatch.WithLogger(logger)), rcache.WithRefresh(time.Minute))
		requireGet(t, c, "ann")
		_, err := c.GetAll(t.Context(), []string{"l", "m"})
		require.NoError(t, err)
		s.set("", errBoom)
		time.Sleep(2 * time.Minute)
		_, err = c.GetAll(t.Context(), []string{"k", "l", "m"})
		require.NoError(t, err)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 3, c.Stats().Failures)
		assert.Regexp(t, `^level=WARN msg="redlatch: a load in the background failed" kind=cache name=users key=redlatch_cache:5:{users:[klm]} cause=boom\n$`, log.String())
	})
}

// hung begins a read whose reply does not come, and some more that wait for it. The result is the cache, the first call, and the others.
func hung(ctx, others context.Context, t *testing.T, p *locktest.Peer) (first <-chan got, waits []<-chan got) {
	t.Helper()
	c := (&source{value: "ann"}).of(p)
	requireGet(t, c, "ann")
	p.HangReplies(1)
	first = get(ctx, c)
	for range 100 {
		waits = append(waits, get(others, c))
	}
	return first, waits
}

func TestReadsOfOneKeyThatComeMeanwhileAreOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		first, waits := hung(ctx, t.Context(), t, p)
		scripts, start := p.Scripts(), time.Now()
		cancel()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		for _, w := range waits {
			assert.Equal(t, got{value: "ann"}, <-w, "the end of one call is nobody else's")
		}
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 1, p.Scripts()-scripts)
	})
}

func TestReadDoesNotWaitLongForOneThatIsStuck(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		start := time.Now()
		first, waits := hung(t.Context(), t.Context(), t, b.Peer(t))
		for _, w := range waits {
			assert.Equal(t, got{value: "ann"}, <-w)
		}
		assert.Equal(t, 1100*time.Millisecond, time.Since(start), "the load takes a second")
		assert.Equal(t, got{value: "ann"}, <-first, "it is repeated")
	})
}

func TestWaitForAReadEndsWithItsContextAndTheClient(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithCancel(t.Context())
		first, waits := hung(t.Context(), ctx, t, b.Peer(t))
		cancel()
		for _, w := range waits {
			err := (<-w).err
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
		}
		assert.Equal(t, got{value: "ann"}, <-first)

		p := b.Peer(t)
		_, waits = hung(t.Context(), t.Context(), t, p)
		require.NoError(t, p.Close())
		for _, w := range waits {
			require.ErrorIs(t, (<-w).err, redlatch.ErrClosed)
		}
	})
}
