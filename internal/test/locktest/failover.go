package locktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	survivors     = 5                     // clients of a group that fails over
	failoverLease = time.Second           // theirs
	pause         = 20 * time.Millisecond // between two calls that found no master
)

// Group is a master, its replica, and three Sentinels that watch them.
type Group struct {
	Master, Replica *redistest.Server
	Sentinel        *redistest.Sentinel
}

// StartGroup starts a group. It ends with the test.
func StartGroup(t *testing.T) *Group {
	t.Helper()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	return &Group{Master: master, Replica: replica, Sentinel: redistest.StartSentinel(t, master, "redlatch", 2, 3)}
}

// Client returns a client of whichever server is the master. It says nothing of what it meets, and is closed when the test ends.
func (g *Group) Client(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	opts = append([]redlatch.Option{redlatch.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	c, err := redlatch.New(g.Sentinel.Client(t), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// StopReplication leaves the replica with what it has: it cannot log in any more.
func (g *Group) StopReplication(t *testing.T) {
	t.Helper()
	rdb := g.Replica.Client(t)
	require.NoError(t, rdb.ConfigSet(t.Context(), "masterauth", "wrong").Err())
	require.NoError(t, g.Master.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	redistest.Eventually(t, limit, "replication stops", func() error {
		info, err := rdb.InfoMap(t.Context(), "replication").Result()
		if err == nil && info["Replication"]["master_link_status"] != "down" {
			err = fmt.Errorf("link is %s", info["Replication"]["master_link_status"])
		}
		return err
	})
}

// Each calls fn for all at once, with a context that ends when it takes too long.
func Each[T any](t *testing.T, all []T, fn func(ctx context.Context, one T)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.ElectionLimit+limit)
	defer cancel()
	var running sync.WaitGroup
	for _, one := range all {
		running.Go(func() { fn(ctx, one) })
	}
	running.Wait()
}

// Persist calls fn until it returns nil: while there is no master, a first try may say so.
func Persist(ctx context.Context, t *testing.T, fn func() error) {
	t.Helper()
	for {
		err := fn()
		if err == nil || !assert.NoError(t, ctx.Err(), "last error: %v", err) {
			return
		}
		wait, cancel := context.WithTimeout(ctx, pause)
		<-wait.Done()
		cancel()
	}
}

// Failover tests that a failover to a replica which has not heard of a hold ends the hold, keeps no client from locking
// again, and leaves nothing for ever.
func Failover(t *testing.T, env Env) {
	t.Helper()
	const name = "failover"
	group := StartGroup(t)
	var locks []rlock.Locker
	for range survivors {
		locks = append(locks, env.New(group.Client(t, redlatch.WithWatchdogTimeout(failoverLease)), name))
	}
	Each(t, locks, func(ctx context.Context, l rlock.Locker) { assert.NoError(t, enter(ctx, l, func() {})) })

	group.StopReplication(t)
	lost := Acquire(t, t.Context(), locks[0])
	for server, want := range map[*redistest.Server]int64{group.Master: 1, group.Replica: 0} {
		n, err := server.Client(t).Exists(t.Context(), name).Result()
		require.NoError(t, err)
		require.Equal(t, want, n, "only the master knows of the hold")
	}
	group.Master.Kill()
	start := time.Now()

	Each(t, locks, func(ctx context.Context, l rlock.Locker) {
		Persist(ctx, t, func() error { return enter(ctx, l, func() {}) })
	})
	t.Logf("all clients have locked again after %v", time.Since(start))
	Ended(t, lost.Context(), rlock.ErrLost)
	require.ErrorIs(t, lost.Unlock(t.Context()), rlock.ErrNotHeld)
	group.Sentinel.AwaitMaster(group.Master.Addr())
	require.Equal(t, group.Replica.Addr(), group.Sentinel.Master())

	var inside atomic.Int64
	Each(t, locks, func(ctx context.Context, l rlock.Locker) {
		assert.NoError(t, enter(ctx, l, func() {
			if n := inside.Add(1); env.Rival == nil {
				assert.EqualValues(t, 1, n, "one at a time")
			}
			inside.Add(-1)
		}))
	})
	group.nothingStays(t)
}

// enter takes the lock, which then has one level as far as it counts them, and gives it up again.
func enter(ctx context.Context, l rlock.Locker, section func()) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	section()
	if l, ok := l.(interface {
		HoldCount(ctx context.Context) (int, error)
	}); ok {
		if n, err := l.HoldCount(hold.Context()); err != nil || n != 1 {
			return errors.Join(fmt.Errorf("hold count %d", n), err, hold.Unlock(ctx))
		}
	}
	return hold.Unlock(ctx)
}

// nothingStays requires that what the new master has will end by itself.
func (g *Group) nothingStays(t *testing.T) {
	t.Helper()
	rdb := g.Replica.Client(t)
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := rdb.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		assert.NotEqual(t, time.Duration(-1), left, "%s has no end", key)
	}
}
