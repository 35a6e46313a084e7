package rrwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// F2
func TestLostRepliesLeaveOneHold(t *testing.T) {
	for lost := 1; lost <= 4; lost++ {
		for _, mode := range []string{"writer", "reader"} {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				side := sides(p.GetReadWriteLock("n"))[mode]
				locktest.Free(t, side) // the scripts are known
				p.LoseReplies(lost)
				h := locktest.Acquire(t, t.Context(), side)
				time.Sleep(10 * time.Second) // what was left unknown is settled
				assert.Len(t, b.Hash(t, "n"), 2, "the mode and one holder")
				locktest.Refused(t, b.Peer(t).GetReadWriteLock("n"))

				p.LoseReplies(lost)
				inner := locktest.Acquire(t, h.Context(), side)
				p.LoseReplies(lost)
				require.NoError(t, inner.Unlock(t.Context()))
				field := h.Owner()
				if mode == "writer" {
					field += ":write"
				}
				assert.Equal(t, "1", b.Hash(t, "n")[field], "one level")

				p.LoseReplies(lost)
				require.NoError(t, h.Unlock(t.Context()))
				p.LoseReplies(0)
				time.Sleep(time.Minute)
				assert.Empty(t, b.Keys(t))
			})
		}
	}
}

// F2
func TestLostRepliesOfADowngrade(t *testing.T) {
	for lost := 1; lost <= 4; lost++ {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			p := b.Peer(t)
			l, other := p.GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
			w := locktest.Acquire(t, t.Context(), l)
			for range 3 {
				p.LoseReplies(lost)
				r := locktest.Acquire(t, w.Context(), l.RLocker())
				p.LoseReplies(lost)
				require.NoError(t, r.Unlock(t.Context()))
				assert.NotContains(t, b.Hash(t, "n"), w.Owner())
			}
			p.LoseReplies(lost)
			r := locktest.Acquire(t, w.Context(), l.RLocker())
			p.LoseReplies(lost)
			require.NoError(t, w.Unlock(t.Context()))
			p.LoseReplies(0)
			time.Sleep(time.Minute)
			locktest.Live(t, r.Context())
			assert.Equal(t, map[string]string{"mode": "read", r.Owner(): "1"}, b.Hash(t, "n"))
			locktest.Refused(t, other)
			locktest.Free(t, other.RLocker())
			locktest.Unlock(t, r)
			time.Sleep(time.Minute)
			assert.Empty(t, b.Keys(t))
		})
	}
}

// F2
func TestLostReplyOfAWriterThatGivesUp(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		r := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker())
		ctx, cancel := context.WithCancel(t.Context())
		waiting := begin(t, ctx, p.GetReadWriteLock("n"))
		p.LoseReplies(2)
		cancel()
		locktest.Failed(t, waiting, context.Canceled)
		time.Sleep(5 * time.Second)
		assert.ElementsMatch(t, []string{"n", "{n}:" + r.Owner() + ":rwlock_timeout:1"}, b.Keys(t), "no mark")
		locktest.Unlock(t, r)
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestWriterReadsAgainWhileItsLastReadIsUnsettled(t *testing.T) {
	for what, when := range map[string]struct{ acquiring, releasing int }{
		"a lost attempt": {acquiring: 1}, "a lost release": {releasing: 1},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetReadWriteLock("n")
				w := locktest.Acquire(t, t.Context(), l)
				locktest.Unlock(t, locktest.Acquire(t, w.Context(), l.RLocker())) // Redis knows the scripts
				p.Withhold(when.acquiring)
				r := locktest.Acquire(t, w.Context(), l.RLocker())
				p.Withhold(when.releasing)
				locktest.Unlock(t, r)
				r = locktest.Acquire(t, w.Context(), l.RLocker())
				state := b.Hash(t, "n")
				require.Equal(t, map[string]string{"mode": "write", w.Owner() + ":write": "1", w.Owner(): "1"}, state)
				require.Equal(t, 1, p.Deliver(t))
				require.Equal(t, state, b.Hash(t, "n"), "the late call changes nothing")
				locktest.Unlock(t, w)
				locktest.Live(t, r.Context())
				locktest.Unlock(t, r)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

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

// F2
func TestLateTryShortensNoLease(t *testing.T) {
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

// F2
func TestLateTryTakesNothingFromADowngradedWriter(t *testing.T) {
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

// F2
func TestLateUnlockOfALevelShortensNoExtension(t *testing.T) {
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

// F2
func TestLateNestedLevelIsNotCounted(t *testing.T) {
	for _, mode := range []string{"writer", "reader"} {
		t.Run(mode, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetReadWriteLock("n")
				side := sides(l)[mode]
				outer := locktest.Acquire(t, t.Context(), side)
				locktest.Unlock(t, locktest.Acquire(t, outer.Context(), side)) // Redis knows the script from here on
				p.Withhold(1)
				ctx, cancel := context.WithTimeout(outer.Context(), time.Millisecond)
				defer cancel()
				_, err := side.Lock(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				locktest.Unlock(t, locktest.Acquire(t, outer.Context(), side))
				require.Equal(t, 1, p.Deliver(t))
				levels, err := l.HoldCount(outer.Context())
				require.NoError(t, err)
				assert.Equal(t, 1, levels)
				locktest.Unlock(t, outer)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}
