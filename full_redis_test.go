package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F28
func TestLocksOutliveAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	const lease = time.Second
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })

	inner, outer := map[string]*rlock.Hold{}, map[string]*rlock.Hold{}
	for kind, get := range allKinds() {
		l := get(c, kind)
		outer[kind] = locktest.Acquire(t, t.Context(), l)
		inner[kind] = locktest.Acquire(t, outer[kind].Context(), l)
	}
	rw := c.GetReadWriteLock("downgraded")
	outer["downgraded"] = locktest.Acquire(t, t.Context(), rw)
	inner["downgraded"] = locktest.Acquire(t, outer["downgraded"].Context(), rw.RLocker())

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = c.GetLock("another").TryLock(t.Context())
	require.ErrorContains(t, err, "OOM")
	over := time.After(3 * lease)
	for kind, hold := range inner {
		select {
		case <-hold.Context().Done():
			require.Fail(t, "lost", "%s: %v", kind, context.Cause(hold.Context()))
		case <-over:
			over = time.After(0)
		}
	}
	for kind, hold := range inner {
		require.NoError(t, context.Cause(hold.Context()), kind)
		if kind == "downgraded" {
			locktest.Unlock(t, outer[kind])
			locktest.Unlock(t, hold)
			continue
		}
		require.NoError(t, hold.Unlock(t.Context()), "a level of %s", kind)
		require.NoError(t, outer[kind].Unlock(t.Context()), kind)
		if kind != "RedLock" {
			assert.Zero(t, admin.Exists(t.Context(), kind).Val(), kind)
			continue
		}
		// Its Unlock waits for two of three parts.
		redistest.Eventually(t, lease/2, kind+" is free", func() error {
			n, err := admin.Exists(t.Context(), kind).Result()
			if err == nil && n > 0 {
				err = errors.New("its key exists")
			}
			return err
		})
	}
}

// F28
func TestWhatIsHeldOutlivesAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	const lease = 2 * time.Second
	client := func() *redlatch.Client {
		c, err := redlatch.New(server.Client(t), redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	holder, waiter := client(), client()
	var all []heldGuest
	for _, g := range guests(lease) {
		if g.name == "queue" {
			continue // its release offers a message
		}
		h := heldGuest{guest: g}
		h.alive, h.release = g.enter(t, holder, g.name)
		all = append(all, h)
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	stayHeld(t, all, 3*lease)
	for _, h := range all {
		err := h.release(t.Context())
		if h.name == "once" { // its result needs memory; the key is free
			require.ErrorContains(t, err, "OOM")
			continue
		}
		require.NoError(t, err, h.name)
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for _, h := range all {
		require.NoError(t, h.wait(t.Context(), waiter, h.name), h.name)
	}
}

// F28
func TestRoundsGoOnInAFullRedis(t *testing.T) {
	t.Parallel()
	for kind, participantOf := range pairs {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			c, err := redlatch.New(server.Client(t))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			// placed waits until all of so many places are good for longer than some were, and returns until when they are.
			placed := func(set string, n int, before float64) (ends float64) {
				t.Helper()
				redistest.Eventually(t, 15*time.Second, "places are renewed", func() error {
					all := admin.ZRangeWithScores(t.Context(), "redlatch_"+kind+"_"+set+":{b}", 0, -1).Val()
					if len(all) != n || slices.ContainsFunc(all, func(z redis.Z) bool { return z.Score <= before }) {
						return fmt.Errorf("%v", all)
					}
					for _, place := range all {
						ends = max(ends, place.Score)
					}
					return nil
				})
				return ends
			}
			first, second := participantOf(c), participantOf(c)
			passed := make(chan error, 1)
			go func() { passed <- first.Enter(t.Context()) }()
			ends := placed("arrived", 1, 0)
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
			for range 2 {
				ends = placed("arrived", 1, ends)
			}
			require.NoError(t, second.Enter(t.Context()))
			require.NoError(t, <-passed)
			if kind == "double" {
				placed("inside", 2, placed("inside", 2, 0))
			}
			go func() { passed <- first.Leave(t.Context()) }()
			require.NoError(t, second.Leave(t.Context()))
			require.NoError(t, <-passed)

			ctx, giveUp := context.WithCancel(t.Context())
			go func() { passed <- first.Enter(ctx) }()
			placed("arrived", 1, 0)
			giveUp()
			require.ErrorIs(t, <-passed, context.Canceled)
			placed("arrived", 0, 0)
		})
	}
}
