package redlatch_test

import (
	"context"
	"maps"
	"os"
	"runtime"
	"strconv"
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
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	lease = 30 * time.Second // of a client without options
	grace = 5 * time.Second  // the same
	tail  = 3 * time.Second  // that Close may take beyond the grace
)

func TestMain(m *testing.M) {
	os.Exit(redistest.Run(m))
}

func TestNewTakesOnlyWhatItKnows(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{
		"nil":               nil,
		"typed nil client":  (*redis.Client)(nil),
		"typed nil cluster": (*redis.ClusterClient)(nil),
		"typed nil ring":    (*redis.Ring)(nil),
		"ring":              ring,
		"a type of its own": struct{ redis.UniversalClient }{},
	} {
		c, err := redlatch.New(rdb)
		assert.ErrorIs(t, err, redlatch.ErrInvalid, name)
		assert.Nil(t, c, name)
	}
}

func TestNewDoesNoIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for i := range 1000 {
			p.GetLock("orders" + strconv.Itoa(i))
			p.GetFencedLock("orders" + strconv.Itoa(i))
		}
		require.NoError(t, p.Close())
		assert.Empty(t, p.Sent())
		assert.NoError(t, p.Redis.Ping(t.Context()).Err(), "the go-redis client stays the caller's to close")
	})
}

func TestCloseReturnsAtOnceWithoutHolds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		idle, used := b.Peer(t), b.Peer(t)
		locktest.Free(t, used.GetLock("orders"))
		start := time.Now()
		require.NoError(t, idle.Close())
		require.NoError(t, used.Close())
		assert.Zero(t, time.Since(start))
	})
}

func TestCloseEndsWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		b.Foreign(t, "orders", time.Hour)
		waits := []<-chan locktest.Outcome{
			locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) }),
			locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) }),
			locktest.Begin(func() (*rlock.Hold, error) { return l.TryLock(t.Context(), rlock.WithWait(time.Hour)) }),
			locktest.Begin(func() (*rlock.Hold, error) {
				return nil, l.Do(t.Context(), func(context.Context) error { return nil })
			}),
		}
		time.Sleep(time.Minute)
		require.NoError(t, p.Close())
		for _, w := range waits {
			o := locktest.Fetch(t, w)
			require.ErrorIs(t, o.Err, redlatch.ErrClosed)
			require.Equal(t, time.Minute, o.After)
		}
	})
}

func TestCloseWaitsForHoldersAndRenewsMeanwhile(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCloseGrace(5*time.Minute))
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		other := locktest.Acquire(t, t.Context(), p.GetLock("invoices"))
		closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p.Close() })
		synctest.Wait()
		for _, h := range []*rlock.Hold{h, other} {
			require.ErrorIs(t, context.Cause(h.Context()), redlatch.ErrClosed)
			require.Equal(t, context.Canceled, h.Context().Err())
		}
		for range 120 {
			time.Sleep(time.Second)
			require.GreaterOrEqual(t, b.TTL(t, "orders"), lease*2/3-100*time.Millisecond)
		}
		locktest.Unlock(t, other)
		synctest.Wait()
		require.Empty(t, closed)
		locktest.Unlock(t, h)
		o := locktest.Fetch(t, closed)
		require.NoError(t, o.Err)
		assert.Equal(t, 2*time.Minute, o.After, "it returns with the last release")
		assert.Empty(t, b.Keys(t))
	})
}

func TestSecondCloseReturnsNil(t *testing.T) {
	c, err := embedded.Open()
	require.NoError(t, err)
	h := locktest.Acquire(t, t.Context(), c.GetLock("orders"))
	var closing []<-chan locktest.Outcome
	for range 5 {
		closing = append(closing, locktest.Begin(func() (*rlock.Hold, error) { return nil, c.Close() }))
	}
	<-h.Context().Done()
	locktest.Unlock(t, h)
	for _, c := range closing {
		require.NoError(t, locktest.Fetch(t, c).Err)
	}
	require.NoError(t, c.Close())
}

func TestCloseReleasesWhatIsStillHeld(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var holds []*rlock.Hold
		for i := range 300 {
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"+strconv.Itoa(i)))
			holds = append(holds, h, locktest.Acquire(t, h.Context(), p.GetLock("orders"+strconv.Itoa(i))))
		}
		start := time.Now()
		require.NoError(t, p.Close())
		assert.Equal(t, grace, time.Since(start))
		assert.Empty(t, b.Keys(t))
		for _, h := range holds {
			require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			require.ErrorIs(t, context.Cause(h.Context()), redlatch.ErrClosed)
		}
	})
}

func TestCloseAbandonsWhatIsStillHeld(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(time.Minute))
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		released := locktest.Acquire(t, t.Context(), p.GetLock("invoices"))
		closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p.Close() })
		synctest.Wait()
		locktest.Unlock(t, released)
		time.Sleep(time.Minute)
		require.NoError(t, locktest.Fetch(t, closed).Err)
		assert.Equal(t, []string{"orders"}, b.Keys(t))
		left := b.TTL(t, "orders")
		assert.LessOrEqual(t, left, lease)
		assert.Error(t, h.Context().Err())
		time.Sleep(left)
		assert.Empty(t, b.Keys(t), "nobody renews it")
	})
}

func TestCloseIsBoundedWithRedisGone(t *testing.T) {
	for name, breakOff := range map[string]func(p *locktest.Peer){
		"silent":  func(p *locktest.Peer) { p.Blackhole(true) },
		"refused": func(p *locktest.Peer) { p.Refuse(true); p.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				var holds []*rlock.Hold
				for i := range 500 {
					holds = append(holds, locktest.Acquire(t, t.Context(), p.GetLock("orders"+strconv.Itoa(i))))
				}
				b.Foreign(t, "taken", time.Hour)
				waiting := locktest.Begin(func() (*rlock.Hold, error) { return p.GetLock("taken").Lock(t.Context()) })
				synctest.Wait()
				breakOff(p)
				unsettled := locktest.Begin(func() (*rlock.Hold, error) { return nil, holds[0].Unlock(t.Context()) })
				time.Sleep(4 * time.Second)
				start := time.Now()
				require.NoError(t, p.Close())
				assert.LessOrEqual(t, time.Since(start), grace+tail)
				locktest.Failed(t, waiting, redlatch.ErrClosed)
				require.Error(t, locktest.Fetch(t, unsettled).Err)
			})
		})
	}
}

func TestClosedClientRefusesCalls(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		require.NoError(t, p.Close())
		sent := len(p.Sent())
		for _, l := range []*rlock.Lock{l, p.GetLock("orders"), p.GetFencedLock("orders")} {
			errs := maps.Collect(locktest.Acquiring(t.Context(), l))
			_, errs["IsLocked"] = l.IsLocked(t.Context())
			_, errs["TTL"] = l.TTL(t.Context())
			_, errs["ForceUnlock"] = l.ForceUnlock(t.Context())
			for verb, err := range errs {
				require.ErrorIs(t, err, redlatch.ErrClosed, verb)
			}
		}
		require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrNotHeld, "Close has ended it")
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		assert.Len(t, p.Sent(), sent)
	})
}

func TestCallsDuringTheGrace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p.Close() })
		synctest.Wait()
		_, err := l.Lock(h.Context())
		require.Error(t, err)
		_, err = l.Lock(context.WithoutCancel(h.Context()))
		require.ErrorIs(t, err, redlatch.ErrClosed, "no new levels either")
		locktest.Unlock(t, h)
		o := locktest.Fetch(t, closed)
		require.NoError(t, o.Err)
		assert.Zero(t, o.After)
	})
}

func TestCloseUnderLoad(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for round := range 10 {
			p := b.Peer(t)
			done := make(chan error, 50)
			for i := range cap(done) {
				go func() {
					var err error
					for err == nil {
						err = p.GetLock("orders"+strconv.Itoa(i%5)).Do(t.Context(), func(context.Context) error {
							time.Sleep(time.Duration(i) * 10 * time.Microsecond)
							return nil
						})
					}
					done <- err
				}()
			}
			time.Sleep(time.Duration(round)*time.Millisecond + 10*time.Microsecond)
			start := time.Now()
			require.NoError(t, p.Close())
			require.Less(t, time.Since(start), time.Second)
			for range cap(done) {
				require.ErrorIs(t, <-done, redlatch.ErrClosed)
			}
			require.Empty(t, b.Keys(t))
		}
	})
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		locktest.Free(t, p.GetLock("orders"))
		b.Foreign(t, "taken", time.Hour)
		_, err := p.GetLock("taken").Lock(t.Context(), rlock.WithWait(time.Second))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, p.Close())
		require.NoError(t, p.Redis.Close())
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, of := range []string{"redlatch/internal/pipeline.", "redlatch/internal/timer.", "redlatch/pubsub."} {
			assert.NotContains(t, string(stacks), of)
		}
	})
}

func TestCloseOfAClientWhoseServerIsGone(t *testing.T) {
	s, err := embedded.Start()
	require.NoError(t, err)
	c, err := redlatch.Open(t.Context(), s.URL())
	require.NoError(t, err)
	s.Close()
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
}

// A pipe without a buffer stalls when a client sends more at once than the server reads before it answers.
func TestEmbeddedClientCarriesManyCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a stalled batch takes 3 s of its time
		c, err := embedded.Open()
		require.NoError(t, err)
		defer c.Close()
		done := make(chan error, 500)
		start := time.Now()
		for i := range cap(done) {
			go func() {
				done <- c.GetLock("orders"+strconv.Itoa(i)).Do(t.Context(), func(context.Context) error { return nil })
			}()
		}
		for range cap(done) {
			require.NoError(t, <-done)
		}
		assert.Less(t, time.Since(start), time.Second)
	})
}

func TestPingIsOneRoundTripAndSaysWhatIsWrong(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(2*time.Second))
		require.NoError(t, p.Ping(t.Context()))
		assert.Equal(t, []string{"ping"}, p.Sent())
		p.Blackhole(true)
		start := time.Now()
		require.ErrorIs(t, p.Ping(t.Context()), redlatch.ErrUnavailable)
		assert.Equal(t, 2*time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Ping(ctx)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		p.Blackhole(false)
		p.Refuse(true)
		require.ErrorIs(t, p.Ping(t.Context()), redlatch.ErrUnavailable)
		p.Refuse(false)
		require.NoError(t, p.Ping(t.Context()))
		b.Mini.SetError("LOADING Redis is loading the dataset in memory")
		require.ErrorIs(t, p.Ping(t.Context()), redlatch.ErrUnavailable)
		b.Mini.SetError("")
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Ping(t.Context()), redlatch.ErrClosed)
	})
}

func TestPingReachesEachMaster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	var h hook
	c, err := redlatch.New(cluster.Client(t), redlatch.WithHooks(&h))
	require.NoError(t, err)
	require.NoError(t, c.Ping(t.Context()))
	assert.EqualValues(t, len(cluster.Nodes()), h.pings.Load())
	require.NoError(t, c.Close())
}

// New says of which client the hooks are called.
func TestHooksOfAClusterClientAreCalled(t *testing.T) {
	for rdb, called := range map[redis.UniversalClient]bool{
		redistest.Shared(t).Client(t):        false,
		redistest.SharedCluster(t).Client(t): true,
	} {
		var h hook
		rdb.AddHook(&h)
		c, err := redlatch.New(rdb)
		require.NoError(t, err)
		locktest.Free(t, c.GetLock("hooks:orders"))
		require.NoError(t, c.Close())
		assert.Equal(t, called, h.scripts.Load() > 0, "%T", rdb)
	}
}

// hook is a hook of go-redis that counts calls of scripts and PINGs.
type hook struct{ scripts, pings atomic.Int64 }

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count(cmd)
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count(cmds...)
		return next(ctx, cmds)
	}
}

func (h *hook) count(cmds ...redis.Cmder) {
	for _, c := range cmds {
		switch c.Name() {
		case "evalsha":
			h.scripts.Add(1)
		case "ping":
			h.pings.Add(1)
		}
	}
}
