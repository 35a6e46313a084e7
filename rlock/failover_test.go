package rlock_test

import (
	"context"
	"fmt"
	"log/slog"
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

// lastToken is where Redis keeps the last token of the lock.
const lastToken = "redisson_lock_token:{failover}"

func TestF09_EveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	sentinel := redistest.StartSentinel(t, master, "redlatch", 2, 3)
	witness := faulttest.NewWitness(t, redistest.Shared(t).Addr(), freshName("failover"))

	var locks []*rlock.Lock
	for range 5 {
		quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
		c, err := redlatch.New(sentinel.Client(t), quiet, redlatch.WithLease(shortLease))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		locks = append(locks, c.GetFencedLock("failover"))
	}
	each(t, locks, func(ctx context.Context, l *rlock.Lock) { draw(ctx, t, witness, l) })

	await(t, replica.Client(t), lastToken)
	stopReplication(t, master, replica)
	each(t, locks, func(ctx context.Context, l *rlock.Lock) { draw(ctx, t, witness, l) })
	lost, err := locks[0].Lock(t.Context())
	require.NoError(t, err)
	witness.Token(lost.Token())
	stale, err := replica.Client(t).Get(t.Context(), lastToken).Int64()
	require.NoError(t, err)
	require.Less(t, stale, lost.Token(), "the replica knows all tokens")
	master.Kill()

	each(t, locks, func(ctx context.Context, l *rlock.Lock) {
		for { // while there is no master, a first try may say so
			err := attemptDraw(ctx, witness, l)
			if err == nil || !assert.NoError(t, ctx.Err(), "last error: %v", err) {
				return
			}
			wait, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			<-wait.Done()
			cancel()
		}
	})
	<-lost.Context().Done()
	assert.ErrorIs(t, context.Cause(lost.Context()), rlock.ErrLost)
	sentinel.AwaitMaster(master.Addr())
	assert.Equal(t, replica.Addr(), sentinel.Master())
	assert.Empty(t, witness.Regressions())
	for _, l := range locks {
		require.NoError(t, wholeLife(t.Context(), l))
	}
}

// await waits until the server has the key.
func await(t *testing.T, rdb *redis.Client, key string) {
	t.Helper()
	redistest.Eventually(t, longWait, key, func() error { return rdb.Get(t.Context(), key).Err() })
}

// each calls fn for all locks at once.
func each(t *testing.T, locks []*rlock.Lock, fn func(context.Context, *rlock.Lock)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range locks {
		all.Go(func() { fn(ctx, l) })
	}
	all.Wait()
}

func draw(ctx context.Context, t *testing.T, w *faulttest.Witness, l *rlock.Lock) {
	assert.NoError(t, attemptDraw(ctx, w, l))
}

// attemptDraw takes the lock and records its token.
func attemptDraw(ctx context.Context, w *faulttest.Witness, l *rlock.Lock) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	w.Token(hold.Token())
	return hold.Unlock(ctx)
}

// stopReplication leaves the replica with what it has: it cannot log in any more.
func stopReplication(t *testing.T, master, replica *redistest.Server) {
	t.Helper()
	rdb := replica.Client(t)
	require.NoError(t, rdb.ConfigSet(t.Context(), "masterauth", "wrong").Err())
	require.NoError(t, master.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	redistest.Eventually(t, longWait, "replication stops", func() error {
		info, err := rdb.InfoMap(t.Context(), "replication").Result()
		if err == nil && info["Replication"]["master_link_status"] != "down" {
			err = fmt.Errorf("link is %s", info["Replication"]["master_link_status"])
		}
		return err
	})
}
