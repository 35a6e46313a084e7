package rmultilock_test

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

func TestMembersAreAttemptedAndReleasedAtTheSameTime(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				c := b.Peer(t)
				l := both(c.Client, c.GetLock("a"), c.GetLock("b"), c.GetLock("c"))[kind]
				locktest.Free(t, l) // Redis knows the scripts
				synctest.Wait()
				before, trips := c.Scripts(), c.Trips()
				h := locktest.Acquire(t, t.Context(), l)
				synctest.Wait()
				assert.Equal(t, 3, c.Scripts()-before)
				assert.Equal(t, 1, c.Trips()-trips)
				assert.ElementsMatch(t, []string{"a", "b", "c"}, b.Keys(t))
				for _, name := range b.Keys(t) {
					assert.Equal(t, 30*time.Second, b.TTL(t, name))
				}
				locktest.Unlock(t, h)
				synctest.Wait()
				assert.Equal(t, 6, c.Scripts()-before)
				assert.Equal(t, 2, c.Trips()-trips)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestRefusedMultiLockReleasesWhatItWasGranted(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"), c.GetLock("c"))
		busy := locktest.Acquire(t, t.Context(), other.GetLock("c"))
		_, err := l.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		assert.Equal(t, []string{"c"}, b.Keys(t))

		waiting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) })
		time.Sleep(time.Second)
		assert.Equal(t, []string{"c"}, b.Keys(t), "it holds nothing while it waits")
		locktest.Unlock(t, busy)
		h := locktest.Next(t, waiting)
		time.Sleep(time.Minute)
		locktest.Live(t, h.Context())
		assert.Len(t, b.Keys(t), 3, "each is renewed")
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))

		mine := locktest.Acquire(t, t.Context(), c.GetLock("b"))
		synctest.Wait()
		before := c.Scripts()
		_, err = l.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		assert.Equal(t, before, c.Scripts(), "this client knows that one is taken")
		locktest.Unlock(t, mine)
	})
}

func TestMembersOfAllKindsTakePart(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, d := b.Peer(t), b.Peer(t)
		for what, l := range map[string]rlock.Locker{
			"a fenced lock":    c.GetMultiLock(c.GetLock("a"), c.GetFencedLock("b")),
			"fenced locks":     c.GetMultiLock(c.GetFencedLock("a"), c.GetFencedLock("b")),
			"a fair lock":      c.GetMultiLock(c.GetLock("a"), c.GetFairLock("b")),
			"two clients":      c.GetMultiLock(c.GetLock("a"), d.GetLock("b")),
			"in a user's type": c.GetMultiLock(c.GetLock("a"), wrapped{c.GetLock("b"), ""}),
			"a part is held":   c.GetMultiLock(c.GetLock("a"), c.GetLock("b")),
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

func TestCancelledAttemptLeavesNothing(t *testing.T) {
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
