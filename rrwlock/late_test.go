package rrwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// late returns a hold of the write lock, two of whose tries are on their way yet: the second one would take over what the
// first one got.
func late(t *testing.T, p *locktest.Peer, other *locktest.Peer) *rlock.Hold {
	t.Helper()
	before := locktest.Acquire(t, t.Context(), other.GetReadWriteLock("n"))
	_, err := p.GetReadWriteLock("n").TryLock(t.Context(), rlock.WithWait(time.Millisecond)) // Redis knows the scripts
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	time.Sleep(time.Second) // it has left
	p.Withhold(2)
	waiting := locktest.Begin(func() (*rlock.Hold, error) { return p.GetReadWriteLock("n").Lock(t.Context()) })
	time.Sleep(2 * time.Second)
	locktest.Unlock(t, before)
	return locktest.Next(t, waiting)
}

func TestF02_LateTryShortensNoLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := late(t, p, b.Peer(t))
		require.NoError(t, h.Extend(t.Context(), 10*time.Minute))
		require.Equal(t, 2, p.Deliver(t))
		assert.GreaterOrEqual(t, b.TTL(t, "n"), 10*time.Minute)
		locktest.Unlock(t, h)
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

func TestF02_LateTryTakesNothingFromADowngradedWriter(t *testing.T) {
	for what, first := range map[string]bool{"while it writes": true, "after it wrote": false} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p, other := b.Peer(t), b.Peer(t)
				h := late(t, p, other)
				reader := locktest.Acquire(t, h.Context(), p.GetReadWriteLock("n").RLocker())
				if first {
					require.Equal(t, 2, p.Deliver(t))
				}
				locktest.Unlock(t, h)
				if !first {
					require.Equal(t, 2, p.Deliver(t))
				}
				for range 60 {
					time.Sleep(time.Second)
					locktest.Refused(t, other.GetReadWriteLock("n"))
				}
				locktest.Live(t, reader.Context())
				locktest.Unlock(t, reader)
				time.Sleep(time.Minute)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestF02_LateUnlockOfALevelShortensNoExtension(t *testing.T) {
	for _, mode := range []string{"writer", "reader"} {
		t.Run(mode, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				side := sides(p.GetReadWriteLock("n"))[mode]
				outer := locktest.Acquire(t, t.Context(), side)
				inner := locktest.Acquire(t, outer.Context(), side)
				p.Withhold(1)
				locktest.Unlock(t, inner)
				require.NoError(t, outer.Extend(t.Context(), 10*time.Minute))
				require.Equal(t, 1, p.Deliver(t))
				for _, key := range b.Keys(t) {
					assert.GreaterOrEqual(t, b.TTL(t, key), 10*time.Minute, key)
				}
				require.NoError(t, outer.Extend(t.Context(), time.Minute))
				assert.Equal(t, time.Minute, b.TTL(t, "n"), "one in time may shorten it")
				locktest.Unlock(t, outer)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}
