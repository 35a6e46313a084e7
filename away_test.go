package redlatch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// awayCall is a call that is made while Redis is away, on an object of its own that was used before.
type awayCall struct {
	name string
	// prepare returns the call. The holder's client reaches Redis directly until it is away.
	prepare func(t *testing.T, c, holder *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error
}

var awayCalls = []awayCall{
	{"Lock", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := lock(c).Lock(ctx); return err }
	}},
	{"TryLock with a wait", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := lock(c).TryLock(ctx, rlock.WithWait(time.Minute))
			return err
		}
	}},
	{"TryLock", func(_ *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := lock(c).TryLock(ctx); return err }
	}},
	{"Lock of a taken lock", func(t *testing.T, c, holder *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		_, err := lock(holder).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error { _, err := lock(c).Lock(ctx); return err }
	}},
	{"Lock under a hold", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		hold, err := lock(c).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error { _, err := lock(c).Lock(under{ctx, hold.Context()}); return err }
	}},
	{"Extend", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		hold, err := lock(c).Lock(t.Context())
		require.NoError(t, err)
		return func(ctx context.Context) error { return hold.Extend(ctx, time.Hour) }
	}},
	{"Unlock", func(t *testing.T, c, _ *redlatch.Client, lock func(c *redlatch.Client) rlock.Locker) func(ctx context.Context) error {
		t.Helper()
		hold, err := lock(c).Lock(t.Context())
		require.NoError(t, err)
		return hold.Unlock
	}},
}

// under is a context that ends with one and descends from the hold of another.
type under struct {
	context.Context
	hold context.Context
}

func (u under) Value(key any) any {
	if v := u.hold.Value(key); v != nil {
		return v
	}
	return u.Context.Value(key)
}

// away are the ways in which Redis is away.
var away = map[string]func(t *testing.T, p *faulttest.Proxy, s *redistest.Server) (back func()){
	"frozen": func(_ *testing.T, _ *faulttest.Proxy, s *redistest.Server) func() {
		s.Pause()
		return s.Resume
	},
	"blackhole": func(_ *testing.T, p *faulttest.Proxy, _ *redistest.Server) func() {
		p.Blackhole(true)
		return func() { p.Blackhole(false) }
	},
	"half-open": func(_ *testing.T, p *faulttest.Proxy, _ *redistest.Server) func() { // each script runs, and nobody hears of it
		p.OnCommand(func(cmd []string) {
			if faulttest.Script(cmd) {
				p.HalfOpen()
			}
		})
		return func() { p.OnCommand(nil) }
	},
	"refused": func(_ *testing.T, p *faulttest.Proxy, _ *redistest.Server) func() {
		p.Refuse(true)
		p.Cut()
		return func() { p.Refuse(false) }
	},
}

// F16
func TestEveryKindOfLockEndsWithItsContextWhileRedisIsAway(t *testing.T) {
	const patience, slack = 300 * time.Millisecond, 50 * time.Millisecond
	kinds := map[string]func(c *redlatch.Client, name string) rlock.Locker{
		"multi": func(c *redlatch.Client, name string) rlock.Locker {
			return c.GetMultiLock(c.GetLock(name+"1"), c.GetFairLock(name+"2"), c.GetReadWriteLock(name+"3"))
		},
		"red": func(c *redlatch.Client, name string) rlock.Locker {
			return c.GetRedLock(c.GetLock(name+"1"), c.GetLock(name+"2"), c.GetLock(name+"3"))
		},
	}
	for kind, get := range lockKinds {
		kinds[kind] = get
	}
	for fault, leave := range away {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := faulttest.NewProxy(t, server.Addr())
			connect := func(addr string) *redlatch.Client {
				rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 100})
				c, err := redlatch.New(rdb, redlatch.WithCloseGrace(0))
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close(); assert.NoError(t, rdb.Close()) })
				return c
			}
			c, holder := connect(proxy.Addr()), connect(server.Addr())
			calls := map[string]func(context.Context) error{}
			for kind, get := range kinds {
				for _, call := range awayCalls {
					name := kind + " " + call.name
					taker := holder
					lock := func(c *redlatch.Client) rlock.Locker {
						if kind == "reader" && c == taker {
							return rival(kind, c, name) // a writer keeps out a reader
						}
						return get(c, name)
					}
					calls[name] = call.prepare(t, c, holder, lock)
				}
			}
			lag := faulttest.MeasureLag(t, "")
			back := leave(t, proxy, server)
			defer back()
			var running sync.WaitGroup
			for name, call := range calls {
				running.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					started := time.Now()
					err := call(ctx)
					assert.Less(t, time.Since(started), patience+slack+lag.Late(), name)
					if fault == "refused" && (errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown)) {
						return // there is no Redis: a call may say so at once
					}
					assert.ErrorIs(t, err, context.DeadlineExceeded, name)
				})
			}
			running.Wait()
			started := time.Now()
			require.NoError(t, c.Close())
			assert.Less(t, time.Since(started), 3*time.Second+slack+lag.Late(), "Close without a grace")
		})
	}
}
