package rlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
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

// wholeLife takes a lock through everything that can be done with it.
func wholeLife(ctx context.Context, l *rlock.Lock) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	inner, err := l.Lock(hold.Context())
	if err != nil {
		return err
	}
	if n, err := l.HoldCount(inner.Context()); err != nil || n != 2 {
		return fmt.Errorf("hold count %d: %w", n, err)
	}
	if err := inner.Unlock(ctx); err != nil {
		return err
	}
	if err := hold.Extend(ctx, time.Minute); err != nil {
		return err
	}
	if left, err := l.TTL(ctx); err != nil || left < 50*time.Second {
		return fmt.Errorf("ttl %v: %w", left, err)
	}
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	if _, err = l.IsLocked(ctx); err != nil {
		return err
	}
	return l.Do(ctx, nothing)
}

// flushing flushes the scripts of the servers every 5 ms until the test, or stop, ends it.
func flushing(t *testing.T, nodes ...*redis.Client) (stop func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	var flusher sync.WaitGroup
	flushes := 0
	flusher.Go(func() { // ends with ctx
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, node := range nodes {
				assert.NoError(t, node.ScriptFlush(t.Context()).Err())
			}
			flushes++
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() int {
		cancel()
		flusher.Wait()
		return flushes
	}
}

// F17
func TestFlushedScriptsAreNotNoticed(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := serve(t)
	var renewed, failed atomic.Int64
	observer := redlatch.Observer{Renewed: func(n, lost int, err error) {
		renewed.Add(int64(n))
		if err != nil || lost > 0 {
			failed.Add(1)
		}
	}}
	client := clientAt(t, server.Addr(), redlatch.WithWatchdogTimeout(patchyLease), redlatch.WithObserver(observer))
	other := clientAt(t, server.Addr())
	held, err := client.GetLock("f17:held").Lock(t.Context())
	require.NoError(t, err)

	stop := flushing(t, server.Client(t))
	end := time.Now().Add(time.Duration(faulttest.Rounds(t, 2, 15)) * patchyLease)
	var workers sync.WaitGroup
	for i := range 16 {
		locks := []*rlock.Lock{
			client.GetLock(fmt.Sprint("f17:own:", i)), client.GetFencedLock(fmt.Sprint("f17:fenced:", i)),
			client.GetLock("f17:shared"), other.GetLock("f17:shared"),
		}
		workers.Go(func() {
			for lives := 0; time.Now().Before(end); lives++ {
				assert.NoError(t, wholeLife(t.Context(), locks[lives%len(locks)]))
			}
		})
	}
	workers.Wait()
	assert.Greater(t, stop(), 10, "flushes")
	assert.NoError(t, context.Cause(held.Context()))
	assert.NoError(t, held.Unlock(t.Context()))
	assert.Positive(t, renewed.Load(), "renewals")
	assert.Zero(t, failed.Load(), "renewals that failed")
}

// F17
func TestRestartedServerServesTheSameClient(t *testing.T) {
	server := serve(t)
	client := clientAt(t, server.Addr(), redlatch.WithWatchdogTimeout(shortLease))
	for range faulttest.Rounds(t, 3, 30) {
		require.NoError(t, wholeLife(t.Context(), client.GetLock("f17")))
		hold, err := client.GetLock("f17:kept").Lock(t.Context())
		require.NoError(t, err)
		server.Restart()
		for _, l := range []*rlock.Lock{client.GetLock("f17"), client.GetFencedLock("f17:fenced")} {
			hold, err := l.Lock(t.Context()) // the first call may find its connection broken
			require.NoError(t, err)
			require.NoError(t, hold.Unlock(t.Context()))
			require.NoError(t, wholeLife(t.Context(), l))
		}
		<-hold.Context().Done()
		assert.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost)
	}
}

// F17
func TestColdClusterNodesAreNotNoticed(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	rdb := cluster.Client(t)
	client, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	var nodes []*redis.Client
	for _, node := range cluster.Nodes() {
		nodes = append(nodes, node.Client(t))
	}
	for _, node := range nodes { // also before the client has seen any of them
		require.NoError(t, node.ScriptFlush(t.Context()).Err())
	}
	stop := flushing(t, nodes...)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for range faulttest.Rounds(t, 10, 100) {
				assert.NoError(t, wholeLife(t.Context(), client.GetLock(freshName("f17"))))
				assert.NoError(t, wholeLife(t.Context(), client.GetFencedLock(freshName("f17"))))
			}
		})
	}
	workers.Wait()
	assert.Positive(t, stop(), "flushes")
}

// F17
func TestFailoverToAColdReplica(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	c := g.client(t, redlatch.WithWatchdogTimeout(lease))
	for range faulttest.Rounds(t, 2, 5) {
		require.NoError(t, wholeLife(t.Context(), c.GetLock(g0(0)))) // the client has used its scripts already
		held := locktest.Acquire(t, t.Context(), c.GetLock(g0(0)))
		require.NoError(t, g.replica.Client(t).ScriptFlush(t.Context()).Err())
		g.failover(t)
		var workers sync.WaitGroup
		for i := range 16 { // as many at once as make a pipeline
			workers.Go(func() {
				assert.NoError(t, wholeLife(t.Context(), c.GetLock(g0(1))))
				assert.NoError(t, wholeLife(t.Context(), c.GetLock(g0(2+i))))
				assert.NoError(t, wholeLife(t.Context(), c.GetFencedLock(g0(20+i))))
			})
		}
		workers.Wait()
		locktest.Live(t, held.Context())
		locktest.Unlock(t, held)
	}
}
