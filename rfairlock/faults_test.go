package rfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
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
	"github.com/redlatch/redlatch/rlock"
)

const (
	oneWay  = 10 * time.Millisecond   // from a client to the server, or back, where it is far away
	recheck = 1250 * time.Millisecond // how often, at least, a client asks after its waiters
)

// rig is a server of a test's own with a proxy before it. What is left on the server fails the test.
type rig struct {
	server *redistest.Server
	proxy  *faulttest.Proxy
	redis  *redis.Client // goes past the proxy
	lag    *faulttest.Lag
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t)
	faulttest.LeakCheck(t, s.Addr())
	return &rig{server: s, proxy: faulttest.NewProxy(t, s.Addr()), redis: s.Client(t), lag: faulttest.MeasureLag(t, s.Addr())}
}

// client returns a client that reaches the server at an address. It is closed when the test ends.
func (r *rig) client(t *testing.T, addr string) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := rdb.Close(); !errors.Is(err, redis.ErrClosed) {
			assert.NoError(t, err)
		}
	})
	c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithCloseGrace(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// empty waits until the server has no keys.
func (r *rig) empty(t *testing.T, limit time.Duration, why string) {
	t.Helper()
	redistest.Eventually(t, limit, why, func() error {
		keys, err := r.redis.Keys(t.Context(), "*").Result()
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("%v are left", keys)
		}
		return err
	})
}

// F1
func TestWaiterThatLostTheLockIsToldBeforeTheNextHasIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for range 20 {
			holder, rival := b.Peer(t), b.Peer(t)
			b.Foreign(t, key, time.Hour)
			first := await(t, t.Context(), b.Redis, holder.GetFairLock(key))
			second := await(t, t.Context(), b.Redis, rival.GetFairLock(key))
			b.Delete(t, key)
			h := locktest.Next(t, first)
			time.Sleep(rand.N(time.Minute))
			holder.Refuse(true)
			holder.Blackhole(true)
			next := <-second
			require.NoError(t, next.Err)
			require.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost)
			require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			holder.Refuse(false)
			holder.Blackhole(false)
			locktest.Unlock(t, next.Hold)
			time.Sleep(time.Minute)
			require.Empty(t, b.Keys(t))
		}
	})
}

// F1
func TestLockTakenAwayIsNoticedWhenTheNextHasIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetFairLock(key))
		waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		b.Delete(t, key)
		next := locktest.Next(t, waiting)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost, "without waiting for a renewal")
		locktest.Live(t, next.Context())
		locktest.Unlock(t, next)
	})
}

// F3
func TestCancelAtAnyInstantLeavesNothing(t *testing.T) {
	r := newRig(t)
	holder, c := r.client(t, r.server.Addr()), r.client(t, r.proxy.Addr())
	locktest.Free(t, c.GetFairLock(key))
	r.proxy.Delay(oneWay)
	const n = 40
	for run := range n {
		h := locktest.Acquire(t, t.Context(), holder.GetFairLock(key))
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(6*oneWay*time.Duration(run)/n, cancel)
		release := time.AfterFunc(rand.N(6*oneWay), func() { assert.NoError(t, h.Unlock(context.WithoutCancel(t.Context()))) })
		taken, err := c.GetFairLock(key).Lock(ctx)
		if err == nil {
			<-ctx.Done()
			require.NoError(t, taken.Unlock(ctx))
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		if release.Stop() {
			require.NoError(t, h.Unlock(t.Context()))
		}
		timer.Stop()
		cancel()
		ended := time.Now()
		r.empty(t, 20*time.Second, fmt.Sprintf("after run %d", run))
		require.Less(t, time.Since(ended), 8*oneWay+100*time.Millisecond+r.lag.Late(), "run %d", run)
	}
}

// F4
func TestWaitersGoOnWithoutMessages(t *testing.T) {
	redistest.Long(t)
	r := newRig(t)
	r.proxy.DropMessages(true)
	clients := []*redlatch.Client{r.client(t, r.proxy.Addr()), r.client(t, r.proxy.Addr())}
	h := locktest.Acquire(t, t.Context(), clients[0].GetFairLock(key))
	var all []<-chan locktest.Outcome
	for i := range 5 {
		all = append(all, locktest.Begin(func() (*rlock.Hold, error) { return clients[i%2].GetFairLock(key).Lock(t.Context()) }))
		redistest.Eventually(t, 20*time.Second, "it queues", func() error {
			if n := len(waiters(t, r.redis)); n != i+1 {
				return fmt.Errorf("%d of %d wait", n, i+1)
			}
			return nil
		})
	}
	for _, waiting := range all {
		start := time.Now()
		locktest.Unlock(t, h)
		h = locktest.Next(t, waiting)
		require.Less(t, time.Since(start), recheck+250*time.Millisecond+r.lag.Late())
	}
	locktest.Unlock(t, h)
}

// F4
func TestReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	r := newRig(t)
	holder, c := r.client(t, r.server.Addr()), r.client(t, r.proxy.Addr())
	var holds sync.Map // the channel's name -> its *rlock.Hold
	r.proxy.OnCommand(func(cmd []string) {
		if !faulttest.Named("SUBSCRIBE")(cmd) {
			return
		}
		for _, channel := range cmd[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(channel, "redisson_lock__channel:{"), "}")
			if hold, ok := holds.LoadAndDelete(name); ok {
				assert.NoError(t, hold.(*rlock.Hold).Unlock(t.Context()))
			}
		}
	})
	var worst time.Duration
	for run := range 100 {
		name := fmt.Sprint("gap-", run)
		holds.Store(name, locktest.Acquire(t, t.Context(), holder.GetFairLock(name)))
		start := time.Now()
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), c.GetFairLock(name)))
		worst = max(worst, time.Since(start))
	}
	r.proxy.OnCommand(nil)
	assert.Less(t, worst, 500*time.Millisecond+r.lag.Late(), "less than the time between two sweeps")
}

// F4
func TestLostSubscriptionLosesNoTurn(t *testing.T) {
	r := newRig(t)
	holder, c := r.client(t, r.server.Addr()), r.client(t, r.proxy.Addr())
	h := locktest.Acquire(t, t.Context(), holder.GetFairLock(key))
	waiting := locktest.Begin(func() (*rlock.Hold, error) { return c.GetFairLock(key).Lock(t.Context()) })
	redistest.Eventually(t, 20*time.Second, "it listens", func() error {
		if n := len(r.redis.PubSubChannels(t.Context(), "redisson*").Val()); n != 1 {
			return fmt.Errorf("%d channels", n)
		}
		return nil
	})
	released := make(chan struct{})
	r.proxy.OnCommand(func(cmd []string) {
		if faulttest.Named("SUBSCRIBE")(cmd) {
			<-released
		}
	})
	r.proxy.Cut()
	start := time.Now()
	locktest.Unlock(t, h)
	close(released)
	locktest.Unlock(t, locktest.Next(t, waiting))
	assert.Less(t, time.Since(start), recheck+250*time.Millisecond+r.lag.Late())
	r.proxy.OnCommand(nil)
}

// F5
func TestNothingIsRenewedAfterTheEnd(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const lease = 300 * time.Millisecond
		p := b.Peer(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithFairWaitTimeout(100*time.Millisecond))
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*lease))
				defer cancel()
				h, err := p.GetFairLock(key).Lock(ctx)
				if err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				time.Sleep(rand.N(20 * time.Millisecond))
				assert.NoError(t, h.Unlock(ctx))
			})
		}
		wg.Wait()
		synctest.Wait()
		assert.Empty(t, b.Keys(t))
		before := p.Scripts()
		time.Sleep(3 * lease)
		assert.Equal(t, before, p.Scripts(), "nobody holds, nobody waits")
	})
}

// F6
func TestShortOutageCostsNeitherTheLockNorAPlace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithFairWaitTimeout(20*time.Second))
		h := locktest.Acquire(t, t.Context(), p.GetFairLock(key))
		first := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		second := await(t, t.Context(), b.Redis, b.Peer(t).GetFairLock(key))
		queued := waiters(t, b.Redis)
		for range 20 {
			p.Blackhole(true)
			time.Sleep(rand.N(8 * time.Second))
			p.Blackhole(false)
			time.Sleep(8 * time.Second)
			require.Equal(t, queued, waiters(t, b.Redis))
			locktest.Live(t, h.Context())
		}
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, first))
		locktest.Unlock(t, locktest.Next(t, second))
	})
}
