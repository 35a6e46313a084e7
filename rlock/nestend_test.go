package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

func TestOuterUnlockEndsANestingUnderWayAndFreesTheLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Hour))
		p.HangReplies(1)
		nesting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(outer.Context()) })
		synctest.Wait()
		locktest.Unlock(t, outer)
		require.ErrorIs(t, locktest.Fetch(t, nesting).Err, context.Canceled)
		assert.Empty(t, b.Keys(t), "nobody holds it")
		locktest.Free(t, b.Peer(t).GetLock("orders"))
	})
}

func TestNestingThatFailsAfterTheOuterUnlockFreesTheLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Hour))
		apart, cancel := context.WithCancel(context.WithoutCancel(outer.Context()))
		p.Blackhole(true)
		nesting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(apart) })
		synctest.Wait()
		require.ErrorIs(t, outer.Unlock(t.Context()), redlatch.ErrUnknown)
		p.Blackhole(false)
		p.HangReplies(1000)
		cancel()
		require.ErrorIs(t, locktest.Fetch(t, nesting).Err, context.Canceled)
		p.HangReplies(0)
		time.Sleep(10 * time.Second)
		assert.Empty(t, b.Keys(t), "nobody holds it")
	})
}
