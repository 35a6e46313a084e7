package rmultilock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

func TestLocksOfOneClientAreTakenInOneScript(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"), c.GetLock("c"))
		locktest.Free(t, l) // Redis knows the scripts
		before := c.Scripts()
		h, err := l.TryLock(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, c.Scripts()-before)
		assert.ElementsMatch(t, []string{"a", "b", "c"}, b.Keys(t))
		for _, name := range b.Keys(t) {
			assert.Equal(t, 30*time.Second, b.TTL(t, name))
			assert.Len(t, b.Hash(t, name), 1)
		}
		locktest.Unlock(t, h)
		assert.Equal(t, 4, c.Scripts()-before, "each is released by itself")

		busy := locktest.Acquire(t, t.Context(), other.GetLock("c"))
		before = c.Scripts()
		_, err = l.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		assert.Equal(t, 1, c.Scripts()-before)
		assert.Equal(t, []string{"c"}, b.Keys(t), "all or nothing")
		waiting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) })
		time.Sleep(time.Second)
		locktest.Unlock(t, busy)
		h = locktest.Next(t, waiting)
		time.Sleep(time.Minute)
		locktest.Live(t, h.Context())
		assert.Len(t, b.Keys(t), 3, "each is renewed")
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

func TestOneScriptHonoursOptions(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"))
		h := locktest.Acquire(t, t.Context(), l, rlock.WithLease(5*time.Second))
		assert.Equal(t, 5*time.Second, b.TTL(t, "a"))
		assert.Equal(t, 5*time.Second, b.TTL(t, "b"))
		locktest.Ended(t, h.Context(), rlock.ErrLost)
	})
}

func TestOnlyPlainLocksOfOneClientGoTogether(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, d := b.Peer(t), b.Peer(t)
		for what, l := range map[string]rlock.Locker{
			"a fenced lock":  c.GetMultiLock(c.GetLock("a"), c.GetFencedLock("b")),
			"fenced locks":   c.GetMultiLock(c.GetFencedLock("a"), c.GetFencedLock("b")),
			"two clients":    c.GetMultiLock(c.GetLock("a"), d.GetLock("b")),
			"a user's own":   c.GetMultiLock(c.GetLock("a"), wrapped{c.GetLock("b"), ""}),
			"a part is held": c.GetMultiLock(c.GetLock("a"), c.GetLock("b")),
		} {
			ctx := t.Context()
			var outer *rlock.Hold
			if what == "a part is held" {
				outer = locktest.Acquire(t, ctx, c.GetLock("a"))
				ctx = outer.Context()
			}
			h, err := l.TryLock(ctx)
			require.NoError(t, err, what)
			locktest.Refused(t, d.GetLock("a"))
			locktest.Refused(t, c.GetLock("b"))
			locktest.Unlock(t, h)
			if outer != nil {
				locktest.Unlock(t, outer)
			}
		}
		tokens := b.Keys(t)
		assert.ElementsMatch(t, []string{"redisson_lock_token:{a}", "redisson_lock_token:{b}"}, tokens, "fenced locks drew tokens")
	})
}

func TestOneScriptOnAClusterNeedsATag(t *testing.T) {
	locktest.OnCluster(t, func(t *testing.T, s *locktest.Server) {
		c := s.Client(t)
		for _, names := range [][]string{{"{together}:a", "{together}:b", "{together}:c"}, {"apart:a", "apart:b", "apart:c"}} {
			l := c.GetMultiLock(locks(c, names)...)
			h := locktest.Acquire(t, t.Context(), l)
			for _, name := range names {
				n, err := s.Redis.Exists(t.Context(), name).Result()
				require.NoError(t, err)
				assert.EqualValues(t, 1, n, name)
			}
			locktest.Unlock(t, h)
		}
	})
}

func TestCancelledScriptLeavesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t, redlatch.WithWatchdogTimeout(lease))
		l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"))
		locktest.Free(t, l)
		c.LoseReplies(1)
		_, err := l.TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		servers{b}.empty(t, 2*lease)

		c.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		within(t, 60*time.Millisecond, context.DeadlineExceeded, func() error { _, err := l.Lock(ctx); return err })
		within(t, 60*time.Millisecond, rlock.ErrNotAcquired, func() error {
			_, err := l.Lock(t.Context(), rlock.WithWait(50*time.Millisecond))
			return err
		})
		c.Blackhole(false)
		servers{b}.empty(t, 2*lease)
	})
}
