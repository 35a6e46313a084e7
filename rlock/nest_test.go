package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

func levels(t *testing.T, l *rlock.Lock, ctx context.Context) int {
	t.Helper()
	n, err := l.HoldCount(ctx)
	require.NoError(t, err)
	return n
}

// endsTheOnlyLevel ends a hold, and requires that Redis has counted one level of it and keeps nothing.
func endsTheOnlyLevel(t *testing.T, b *locktest.Bubble, l *rlock.Lock, h *rlock.Hold) {
	t.Helper()
	assert.Equal(t, 1, levels(t, l, h.Context()))
	locktest.Unlock(t, h)
	assert.Empty(t, b.Keys(t))
}

func TestNestingIsCountedInRedis(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		var holds []*rlock.Hold
		ctx := t.Context()
		for depth := 1; depth <= 5; depth++ {
			h := locktest.Acquire(t, ctx, l)
			holds, ctx = append(holds, h), h.Context()
			require.Equal(t, depth, levels(t, l, ctx))
			require.Equal(t, depth, levels(t, l, holds[0].Context()), "levels are those of the hold, not of one level")
			require.Equal(t, "54321"[5-depth:6-depth], b.Hash(t, "orders")[h.Owner()])
		}
		assert.Zero(t, levels(t, l, t.Context()))
		assert.Zero(t, levels(t, l, rlock.Detach(ctx)))
		for i, h := range holds { // outer levels first
			locktest.Unlock(t, h)
			if i < 4 {
				require.Equal(t, 4-i, levels(t, l, ctx))
			}
		}
		assert.Empty(t, b.Keys(t))
		assert.Zero(t, levels(t, l, ctx))
	})
}

func TestNestedHoldIsRenewedAfterTheOuterRelease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		locktest.Unlock(t, outer)
		for range 100 {
			time.Sleep(time.Second)
			require.GreaterOrEqual(t, b.TTL(t, "orders"), lease*2/3-moment)
		}
		locktest.Live(t, inner.Context())
		b.Delete(t, "orders")
		time.Sleep(third)
		locktest.Ended(t, inner.Context(), rlock.ErrLost)
		require.ErrorIs(t, context.Cause(outer.Context()), rlock.ErrUnlocked, "the loss came after the release")
	})
}

func TestNestedHoldEndsWithTheDeadlineItWasGiven(t *testing.T) {
	for name, unlockOuter := range map[string]bool{"outer held": false, "outer released": true} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetLock("orders")
				start := time.Now()
				outer := locktest.Acquire(t, t.Context(), l)
				ctx, cancel := context.WithTimeout(outer.Context(), 10*time.Second)
				defer cancel()
				inner := locktest.Acquire(t, ctx, l)
				innermost := locktest.Acquire(t, inner.Context(), l)
				time.Sleep(3 * time.Second)
				if unlockOuter {
					locktest.Unlock(t, outer)
				}
				time.Sleep(6 * time.Second)
				for _, h := range []*rlock.Hold{innermost, inner} {
					locktest.Live(t, h.Context())
				}
				for _, h := range []*rlock.Hold{innermost, inner} {
					<-h.Context().Done()
					assert.Equal(t, 10*time.Second, time.Since(start))
					assert.ErrorIs(t, context.Cause(h.Context()), context.DeadlineExceeded)
					assert.Equal(t, context.DeadlineExceeded, h.Context().Err())
				}
				assert.NotEmpty(t, b.Keys(t), "the lock stays held")
				locktest.Unlock(t, innermost)
				locktest.Unlock(t, inner)
				if !unlockOuter {
					locktest.Live(t, outer.Context())
					locktest.Unlock(t, outer)
				}
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestNestedHoldEndsWithTheRequest(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		request, cancel := context.WithCancelCause(t.Context())
		outer := locktest.Acquire(t, request, l)
		middle := locktest.Acquire(t, outer.Context(), l)
		inner := locktest.Acquire(t, middle.Context(), l)
		locktest.Unlock(t, middle)
		synctest.Wait()
		locktest.Live(t, inner.Context())
		locktest.Unlock(t, outer)
		synctest.Wait()
		locktest.Live(t, inner.Context())
		cancel(assert.AnError)
		locktest.Ended(t, inner.Context(), assert.AnError)
		locktest.Unlock(t, inner)
	})
}

func TestLevelsShareTheLongestLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		start := time.Now()
		long := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(2*time.Minute))
		assert.Equal(t, 2*time.Minute, b.TTL(t, "orders"))
		short := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Second))
		assert.Equal(t, 2*time.Minute, b.TTL(t, "orders"))
		endsAt(t, short.Context(), start.Add(time.Second-margin(time.Second)), rlock.ErrLost)
		time.Sleep(time.Minute)
		assert.Equal(t, start.Add(2*time.Minute).Round(0), time.Now().Add(b.TTL(t, "orders")).Round(0), "renewal shortens nothing")
		endsAt(t, long.Context(), start.Add(2*time.Minute-margin(2*time.Minute)), rlock.ErrLost)
		locktest.Live(t, outer.Context())
		time.Sleep(2 * lease)
		assert.GreaterOrEqual(t, b.TTL(t, "orders"), lease*2/3-moment)
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

func TestLevelsThatAreOverDoNotCount(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Second))
		<-inner.Context().Done()
		time.Sleep(lease)
		assert.Equal(t, 1, levels(t, l, outer.Context()))
		locktest.Unlock(t, outer)
	})
}

func TestFixedOuterLeaseEndsUnderARenewedLevel(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		start := time.Now()
		outer := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(5*time.Second))
		inner := locktest.Acquire(t, outer.Context(), l)
		assert.Equal(t, lease, b.TTL(t, "orders"), "the longest end among the levels")
		endsAt(t, outer.Context(), start.Add(5*time.Second-margin(5*time.Second)), rlock.ErrLost)
		// The inner level was given the outer one's context, which has ended for another reason than its release.
		locktest.Ended(t, inner.Context(), rlock.ErrLost)
		locktest.Unlock(t, inner)
		assert.Empty(t, b.Keys(t))
	})
}

func TestLevelWhoseLeaseEndsBeforeTheAnswerIsLost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		p.Blackhole(true)
		nesting := locktest.Begin(func() (*rlock.Hold, error) {
			return l.Lock(outer.Context(), rlock.WithFixedLease(100*time.Millisecond))
		})
		time.Sleep(time.Second)
		p.Blackhole(false)
		require.ErrorIs(t, locktest.Fetch(t, nesting).Err, rlock.ErrLost)
		locktest.Live(t, outer.Context())
		time.Sleep(6 * time.Second) // the levels are counted again
		endsTheOnlyLevel(t, b, l, outer)
	})
}

func TestNestingAfterALossFails(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		b.Delete(t, "orders")
		_, err := l.Lock(outer.Context())
		require.ErrorIs(t, err, rlock.ErrLost, "nesting asks Redis, and notices")
		locktest.Ended(t, outer.Context(), rlock.ErrLost)
		assert.Empty(t, b.Keys(t))
	})
}

func TestOtherLockUnderAHoldStaysHeldAndRenewed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		outer := locktest.Acquire(t, t.Context(), p.GetLock("a"))
		child := locktest.Acquire(t, outer.Context(), p.GetLock("b"))
		locktest.Unlock(t, outer)
		locktest.Ended(t, child.Context(), rlock.ErrUnlocked)
		assert.Contains(t, context.Cause(child.Context()).Error(), `"a"`, "the cause names the lock that ended")
		time.Sleep(3 * lease)
		assert.GreaterOrEqual(t, b.TTL(t, "b"), lease*2/3-moment, "renewed until its own Unlock")
		locktest.Unlock(t, child)
		assert.Empty(t, b.Keys(t))
	})
}

func TestLockCoupling(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		request := t.Context()
		a := locktest.Acquire(t, request, p.GetLock("a"))
		next := locktest.Acquire(t, request, p.GetLock("b"))
		locktest.Unlock(t, a)
		locktest.Live(t, next.Context())
		locktest.Unlock(t, next)
	})
}

func TestConcurrentLevelsKeepTheCount(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		done := make(chan error, 16)
		for range 16 {
			go func() {
				for range 5 {
					if err := l.Do(outer.Context(), func(context.Context) error { return nil }); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 16 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, map[string]string{outer.Owner(): "1"}, b.Hash(t, "orders"))
		locktest.Live(t, outer.Context())
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

func TestNestedUnlockRacesTheOuterOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		for range 100 { // whatever the order in which the goroutines run
			outer := locktest.Acquire(t, t.Context(), l)
			inner := locktest.Acquire(t, outer.Context(), l)
			done := make(chan error, 2)
			for _, h := range []*rlock.Hold{outer, inner} {
				go func() { done <- h.Unlock(t.Context()) }()
			}
			require.NoError(t, <-done)
			require.NoError(t, <-done)
			require.Empty(t, b.Keys(t))
		}
	})
}

func TestNestedUnlockSaysThatTheLockWasLostWhileItWaited(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *locktest.Bubble, *rlock.Hold){
		"Redis no longer has it": func(t *testing.T, b *locktest.Bubble, _ *rlock.Hold) { b.Delete(t, "orders") },
		"the lease ended":        func(_ *testing.T, _ *locktest.Bubble, outer *rlock.Hold) { <-outer.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetLock("orders")
				outer := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(2*time.Second))
				inner := locktest.Acquire(t, outer.Context(), l)
				p.Blackhole(true)
				extended, unlocked := make(chan error, 1), make(chan error, 1)
				go func() { extended <- outer.Extend(t.Context(), lease) }()
				synctest.Wait() // from here on the Unlock waits for the extension
				go func() { unlocked <- inner.Unlock(t.Context()) }()
				synctest.Wait()
				lose(t, b, outer)
				p.Blackhole(false)
				require.Error(t, <-extended)
				require.ErrorIs(t, <-unlocked, rlock.ErrNotHeld)
				time.Sleep(5 * time.Second) // the release of a lease that ended here is repeated
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}
