package rfairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlock"
)

// granted returns a hold of a waiter.
func granted(t *testing.T, b *locktest.Bubble, l *rfairlock.Lock, opts ...rlock.Option) *rlock.Hold {
	t.Helper()
	b.Foreign(t, key, time.Hour)
	waiting := await(t, t.Context(), b.Redis, l, opts...)
	b.Delete(t, key)
	return locktest.Next(t, waiting)
}

// F2
func TestLateReleaseFreesNoOtherHold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t)
		locktest.Unlock(t, granted(t, b, p.GetFairLock(key))) // Redis knows the scripts
		h := granted(t, b, p.GetFairLock(key))
		p.Withhold(1)
		locktest.Unlock(t, h) // it was sent twice
		h = locktest.Acquire(t, t.Context(), p.GetFairLock(key))
		require.Equal(t, 1, p.Deliver(t))
		locktest.Refused(t, other.GetFairLock(key))
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLateTryChangesNoLevels(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetFairLock(key)
		locktest.Free(t, l) // Redis knows the scripts
		p.Withhold(1)
		outer := locktest.Acquire(t, t.Context(), l) // by the second try
		inner := locktest.Acquire(t, outer.Context(), l)
		require.Equal(t, 1, p.Deliver(t))
		n, err := l.HoldCount(inner.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		locktest.Unlock(t, inner)
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLateExtensionShortensNoOtherHold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := granted(t, b, p.GetFairLock(key))
		require.NoError(t, h.Extend(t.Context(), time.Minute)) // Redis knows the scripts
		p.Withhold(1)
		require.NoError(t, h.Extend(t.Context(), time.Second)) // it was sent twice
		locktest.Unlock(t, h)
		h = locktest.Acquire(t, t.Context(), p.GetFairLock(key), rlock.WithFixedLease(time.Minute))
		require.Equal(t, 1, p.Deliver(t))
		require.LessOrEqual(t, time.Until(h.ExpiresAt()), b.TTL(t, key))
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLateLeaveFreesNoOtherHold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t)
		b.Foreign(t, key, time.Hour)
		warm(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		leaving := await(t, ctx, b.Redis, p.GetFairLock(key))
		p.Withhold(1)
		cancel()
		locktest.Failed(t, leaving, context.Canceled)
		time.Sleep(time.Second) // it was sent again
		synctest.Wait()
		b.Delete(t, key)
		h := locktest.Acquire(t, t.Context(), p.GetFairLock(key))
		require.Equal(t, 1, p.Deliver(t))
		locktest.Refused(t, other.GetFairLock(key))
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLateTryShortensNoLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		b.Foreign(t, key, time.Hour)
		warm(t, p)
		p.Withhold(2) // the second one would take over what the first one got
		waiting := locktest.Begin(func() (*rlock.Hold, error) { return p.GetFairLock(key).Lock(t.Context()) })
		time.Sleep(2 * time.Second)
		b.Delete(t, key)
		h := locktest.Next(t, waiting)
		require.NoError(t, h.Extend(t.Context(), 10*time.Minute))
		require.Equal(t, 2, p.Deliver(t))
		assert.GreaterOrEqual(t, b.TTL(t, key), 10*time.Minute)
		locktest.Unlock(t, h)
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

func TestLateTryQueuesNoHolder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		locktest.Free(t, p.GetFairLock(key)) // Redis knows the scripts
		p.Withhold(1)
		h := locktest.Acquire(t, t.Context(), p.GetFairLock(key)) // by the second try
		require.Equal(t, 1, p.Deliver(t))
		assert.Empty(t, waiters(t, b.Redis))
		time.Sleep(10 * time.Minute)
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
		locktest.Free(t, b.Peer(t).GetFairLock(key))
	})
}

// fickle is a context that is done from the moment on at which the lock was granted, and tells nobody.
type fickle struct {
	context.Context
	redis *redis.Client
}

func (f fickle) Done() <-chan struct{} { return nil }

func (f fickle) Err() error {
	if f.redis.Exists(context.Background(), key).Val() == 1 {
		return context.Canceled
	}
	return nil
}

func TestGrantThatNobodyWantsIsLeftOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		locktest.Free(t, p.GetFairLock(key))
		before := p.Scripts()
		_, err := p.GetFairLock(key).Lock(fickle{t.Context(), b.Redis})
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, b.Keys(t))
		assert.LessOrEqual(t, p.Scripts()-before, 3, "the try, and a leave whose script Redis did not know")
	})
}
