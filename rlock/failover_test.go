package rlock_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// lastToken is where Redis keeps the last token of the lock.
const lastToken = "redisson_lock_token:{failover}"

// F9
func TestEveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	redistest.Long(t)
	group := locktest.StartGroup(t)
	witness := faulttest.NewWitness(t, redistest.Shared(t).Addr(), freshName("failover"))

	var locks []*rlock.Lock
	for range 5 {
		c := group.Client(t, redlatch.WithWatchdogTimeout(shortLease))
		locks = append(locks, c.GetFencedLock("failover"))
	}
	locktest.Each(t, locks, func(ctx context.Context, l *rlock.Lock) { draw(ctx, t, witness, l) })

	await(t, group.Replica.Client(t), lastToken)
	group.StopReplication(t)
	locktest.Each(t, locks, func(ctx context.Context, l *rlock.Lock) { draw(ctx, t, witness, l) })
	lost, err := locks[0].Lock(t.Context())
	require.NoError(t, err)
	witness.Token(lost.Token())
	stale, err := group.Replica.Client(t).Get(t.Context(), lastToken).Int64()
	require.NoError(t, err)
	require.Less(t, stale, lost.Token(), "the replica knows all tokens")
	group.Master.Kill()

	locktest.Each(t, locks, func(ctx context.Context, l *rlock.Lock) {
		locktest.Persist(ctx, t, func() error { return attemptDraw(ctx, witness, l) })
	})
	<-lost.Context().Done()
	assert.ErrorIs(t, context.Cause(lost.Context()), rlock.ErrLost)
	group.Sentinel.AwaitMaster(group.Master.Addr())
	assert.Equal(t, group.Replica.Addr(), group.Sentinel.Master())
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
