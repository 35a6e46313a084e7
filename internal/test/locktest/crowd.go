package locktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// Crowd has n goroutines of one client wait for a lock that another client holds, and tests that each enters once, as
// Waiters does. It returns how many commands the client sent for each of them.
func Crowd(t *testing.T, env Env, n int, opts ...redlatch.Option) float64 {
	t.Helper()
	shared := redistest.Shared(t)
	proxy := faulttest.NewProxy(t, shared.Addr())
	at := func(addr string) *redlatch.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { closeClient(t, rdb) })
		c, err := redlatch.New(rdb, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	r := &rig{env: env, name: "locktest:" + uuid.NewString()}
	first := Acquire(t, t.Context(), r.rivalOf(at(shared.Addr()), r.name))
	return Waiters(t, proxy, first, env.New(at(proxy.Addr()), r.name), Herd{N: n, Together: env.Rival != nil, InLine: true})
}

// Herd is how many goroutines wait, and how.
type Herd struct {
	N int
	// Together says that holders share the lock.
	Together bool
	// InLine has the first one refused before the others come: those who share, or ask for several, would all ask once. The hold that
	// keeps them out must be another client's.
	InLine bool
}

// Waiters has goroutines wait for a lock, releases the hold that keeps them out, and requires that each enters once: alone,
// or, if holders share the lock, all together. It returns how many commands passed the proxy for each of them.
func Waiters(t *testing.T, proxy *faulttest.Proxy, first *rlock.Hold, lock rlock.Locker, herd Herd) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
	defer cancel()
	before := proxy.Total()
	var inside, sections atomic.Int64
	all := make(chan struct{}) // closed by the last one to come in
	section := func() {
		now := inside.Add(1)
		defer inside.Add(-1)
		if !herd.Together {
			assert.EqualValues(t, 1, now, "one at a time")
			return
		}
		if now == int64(herd.N) {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
			assert.Fail(t, "the others do not come in", "%d of %d are in", inside.Load(), herd.N)
		}
	}
	var started, waiters sync.WaitGroup
	started.Add(herd.N)
	for i := range herd.N {
		waiters.Go(func() {
			started.Done()
			hold, err := lock.Lock(ctx)
			if !assert.NoError(t, err) {
				return
			}
			section()
			sections.Add(1)
			assert.NoError(t, hold.Unlock(ctx))
		})
		if i == 0 && herd.InLine {
			redistest.Eventually(t, limit, "the first one is refused", func() error {
				if proxy.Commands()["SUBSCRIBE"] == 0 {
					return errors.New("it has not subscribed")
				}
				return nil
			})
		}
	}
	started.Wait()
	require.NoError(t, first.Unlock(t.Context()))
	waiters.Wait()
	assert.EqualValues(t, herd.N, sections.Load(), "each enters once")
	perHandOff := float64(proxy.Total()-before) / float64(herd.N)
	t.Logf("%.2f commands per hand-off, %v", perHandOff, proxy.Commands())
	return perHandOff
}
