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

// These tests set a lease that ends sooner than the one before. A context that lives on when Redis has let the lock go is a second
// holder.

// coveredFor requires, for so long, that the hold's context does not outlive the lock in Redis.
func coveredFor(t *testing.T, b *locktest.Bubble, h *rlock.Hold, span time.Duration) {
	t.Helper()
	for range span / time.Second {
		if h.Context().Err() != nil {
			return
		}
		require.Contains(t, b.Hash(t, "orders"), h.Owner(), "the context lives, and Redis has let the lock go")
		require.LessOrEqual(t, time.Until(h.ExpiresAt()), b.TTL(t, "orders"), "the promise is longer than the lease")
		time.Sleep(time.Second)
	}
}

func TestLevelThatEndsAfterAShorterExtensionLeavesTheOthersCovered(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		require.NoError(t, inner.Extend(t.Context(), time.Hour))
		require.NoError(t, inner.Extend(t.Context(), 10*time.Second))
		<-inner.Context().Done()
		coveredFor(t, b, outer, 3*lease)
		locktest.Live(t, outer.Context())
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

func TestUnknownUnlockOfALongLevelLeavesTheOthersCovered(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Hour))
		p.LoseReplies(1000)
		require.ErrorIs(t, inner.Unlock(t.Context()), redlatch.ErrUnknown)
		p.LoseReplies(0)
		coveredFor(t, b, outer, 3*lease)
		locktest.Live(t, outer.Context())
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

func TestUnknownExtensionPromisesTheShorterLease(t *testing.T) {
	for name, opts := range map[string][]rlock.Option{"fixed": {rlock.WithFixedLease(time.Hour)}, "renewed": nil} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"), opts...)
				other := locktest.Acquire(t, t.Context(), p.GetLock("others"))
				require.NoError(t, other.Extend(t.Context(), time.Hour), "Redis knows the script from here on")
				locktest.Unlock(t, other)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				p.LoseReplies(1000)
				require.Error(t, h.Extend(ctx, 5*time.Second))
				p.LoseReplies(0)
				coveredFor(t, b, h, 2*lease)
				locktest.Ended(t, h.Context(), rlock.ErrLost)
				synctest.Wait()
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestLossUnderALongLevelIsNoticedByWhoWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Hour))
		b.Delete(t, "orders")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		next, err := l.Lock(ctx)
		require.NoError(t, err, "the lock is free, and this client asks about it while somebody waits")
		locktest.Ended(t, outer.Context(), rlock.ErrLost)
		locktest.Ended(t, inner.Context(), rlock.ErrLost)
		locktest.Unlock(t, next)
	})
}

func TestLossUnderALongLevelIsNoticedByRenewal(t *testing.T) {
	for name, lengthen := range map[string]func(t *testing.T, l *rlock.Lock, outer *rlock.Hold) *rlock.Hold{
		"a nested lease": func(t *testing.T, l *rlock.Lock, outer *rlock.Hold) *rlock.Hold {
			return locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Hour))
		},
		"an extension of a nested level": func(t *testing.T, l *rlock.Lock, outer *rlock.Hold) *rlock.Hold {
			inner := locktest.Acquire(t, outer.Context(), l)
			require.NoError(t, inner.Extend(t.Context(), time.Hour))
			return inner
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetLock("orders")
				outer := locktest.Acquire(t, t.Context(), l)
				inner := lengthen(t, l, outer)
				time.Sleep(10 * time.Minute)
				locktest.Live(t, inner.Context())
				locktest.Live(t, outer.Context())
				assert.InDelta(t, 50*time.Minute, b.TTL(t, "orders"), float64(time.Second), "renewal shortens nothing")
				b.Delete(t, "orders")
				start := time.Now()
				locktest.Ended(t, outer.Context(), rlock.ErrLost)
				locktest.Ended(t, inner.Context(), rlock.ErrLost)
				assert.LessOrEqual(t, time.Since(start), lease/3+time.Second)
			})
		})
	}
}

func TestLossOfABoundedHoldIsNoticedByRenewal(t *testing.T) {
	for after, limit := range map[time.Duration]time.Duration{time.Second: lease, 31 * time.Second: time.Minute, 2 * time.Minute: time.Hour} {
		t.Run(limit.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetLock("orders")
				h := locktest.Acquire(t, t.Context(), l, rlock.WithMaxHold(limit))
				time.Sleep(after)
				b.Delete(t, "orders")
				start := time.Now()
				locktest.Ended(t, h.Context(), rlock.ErrLost)
				assert.LessOrEqual(t, time.Since(start), lease/3+time.Second)
			})
		})
	}
}

// late has the call that do makes first arrive only after it was repeated, and after then has run.
func late(t *testing.T, p *locktest.Peer, do, then func()) {
	t.Helper()
	p.Withhold(1)
	do()
	then()
	require.Equal(t, 1, p.Deliver(t), "a late call")
}

func TestCallThatArrivesLateDoesNotShortenAnExtension(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		extend := func() { require.NoError(t, outer.Extend(t.Context(), time.Hour)) }
		late(t, p, func() { locktest.Unlock(t, inner) }, extend)
		require.LessOrEqual(t, time.Until(outer.ExpiresAt()), b.TTL(t, "orders"), "an Unlock that was late")

		time.Sleep(5 * time.Second) // nothing that was sent before may arrive from here on
		require.NoError(t, outer.Extend(t.Context(), 5*time.Second))
		require.Equal(t, 5*time.Second, b.TTL(t, "orders"))
		late(t, p, func() { require.NoError(t, outer.Extend(t.Context(), 10*time.Second)) }, extend)
		require.LessOrEqual(t, time.Until(outer.ExpiresAt()), b.TTL(t, "orders"), "an Extend that was late")
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

// givenUp extends the hold to a second, and hears of no answer.
func givenUp(t *testing.T, h *rlock.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.Extend(ctx, time.Second), context.DeadlineExceeded)
}

func TestExtensionEndsWithItsHold(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *rlock.Hold){
		"unlocked": func(t *testing.T, h *rlock.Hold) { require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrUnknown) },
		"lost":     func(_ *testing.T, h *rlock.Hold) { <-h.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"), rlock.WithFixedLease(5*time.Second))
				p.Blackhole(true)
				extending := locktest.Begin(func() (*rlock.Hold, error) { return nil, h.Extend(t.Context(), time.Hour) })
				synctest.Wait()
				end(t, h)
				ended := time.Now()
				locktest.Failed(t, extending, redlatch.ErrUnknown)
				assert.LessOrEqual(t, time.Since(ended), 3*time.Second, "nothing is sent for it any more")
				p.Blackhole(false)
				time.Sleep(2 * lease)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

// F2
func TestLateExtensionShortensNoNewerOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		require.NoError(t, h.Extend(t.Context(), lease), "Redis knows the script from here on")
		p.Withhold(1)
		givenUp(t, h)
		require.NoError(t, h.Extend(t.Context(), lease*2/3))
		require.Equal(t, 1, p.Deliver(t))
		require.LessOrEqual(t, time.Until(h.ExpiresAt()), b.TTL(t, "orders"))
		assert.Greater(t, time.Until(h.ExpiresAt()), lease/2)
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLateNestedLevelIsNotCounted(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, l *rlock.Lock, outer *rlock.Hold){
		"taken back": func(*testing.T, *rlock.Lock, *rlock.Hold) { time.Sleep(time.Second) },
		"after another level": func(t *testing.T, l *rlock.Lock, outer *rlock.Hold) {
			locktest.Unlock(t, locktest.Acquire(t, outer.Context(), l))
		},
		"after another level of its own lease": func(t *testing.T, l *rlock.Lock, outer *rlock.Hold) {
			locktest.Unlock(t, locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Minute)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetLock("orders")
				outer := locktest.Acquire(t, t.Context(), l)
				locktest.Unlock(t, locktest.Acquire(t, outer.Context(), l)) // Redis knows the script from here on
				p.Withhold(1)
				ctx, cancel := context.WithTimeout(outer.Context(), time.Millisecond)
				defer cancel()
				_, err := l.Lock(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				then(t, l, outer)
				require.Equal(t, 1, p.Deliver(t))
				assert.Equal(t, 1, levels(t, l, outer.Context()))
				coveredFor(t, b, outer, 2*lease)
				locktest.Unlock(t, outer)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestUnknownUnlockOfALevelIsCountedLater(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		p.Blackhole(true)
		require.ErrorIs(t, inner.Unlock(t.Context()), redlatch.ErrUnknown)
		p.Blackhole(false)
		time.Sleep(6 * time.Second) // the next attempt
		endsTheOnlyLevel(t, b, l, outer)
	})
}

func TestUnknownUnlockOfALevelBehindAnotherOperationIsCountedLater(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(time.Hour))
		p.Blackhole(true)
		extended := make(chan error, 1) // one answer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go func() { extended <- outer.Extend(ctx, 2*time.Minute) }()
		synctest.Wait()
		require.ErrorIs(t, inner.Unlock(t.Context()), redlatch.ErrUnknown)
		p.Blackhole(false)
		require.NoError(t, <-extended)
		time.Sleep(6 * time.Second) // the next attempt
		endsTheOnlyLevel(t, b, l, outer)
	})
}

func TestUnknownUnlockOfALevelOutlivesALongOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Hour))
		inner := locktest.Acquire(t, outer.Context(), l, rlock.WithFixedLease(24*time.Hour))
		p.Blackhole(true)
		require.ErrorIs(t, inner.Unlock(t.Context()), redlatch.ErrUnknown)
		time.Sleep(lease + 5*time.Second)
		p.Blackhole(false)
		time.Sleep(20 * time.Second) // a later attempt
		assert.Equal(t, 1, levels(t, l, outer.Context()))
		assert.LessOrEqual(t, b.TTL(t, "orders"), time.Hour)
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLateExtensionShortensNoOtherHold(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *locktest.Bubble, *locktest.Peer, *rlock.Hold){
		"answered when it was repeated": func(t *testing.T, _ *locktest.Bubble, _ *locktest.Peer, h *rlock.Hold) {
			require.NoError(t, h.Extend(t.Context(), time.Second))
			locktest.Unlock(t, h)
		},
		"given up": func(t *testing.T, _ *locktest.Bubble, _ *locktest.Peer, h *rlock.Hold) {
			givenUp(t, h)
			locktest.Unlock(t, h)
		},
		"given up before an unknown Unlock": func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, h *rlock.Hold) {
			givenUp(t, h)
			p.Refuse(true)
			p.Cut()
			require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrUnknown)
			p.Refuse(false)
			time.Sleep(2 * time.Second) // the next attempt of the release
		},
		"lost": func(t *testing.T, b *locktest.Bubble, _ *locktest.Peer, h *rlock.Hold) {
			b.Delete(t, "orders")
			require.ErrorIs(t, h.Extend(t.Context(), time.Second), rlock.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetLock("orders")
				h := locktest.Acquire(t, t.Context(), l)
				require.NoError(t, h.Extend(t.Context(), lease), "Redis knows the script from here on")
				p.Withhold(1)
				end(t, b, p, h)
				waiting := queue(t, l)
				time.Sleep(time.Second)
				require.Equal(t, 1, p.Deliver(t), "a late call")
				h = locktest.Next(t, waiting)
				require.LessOrEqual(t, time.Until(h.ExpiresAt()), b.TTL(t, "orders"))
				locktest.Unlock(t, h)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestExtensionThatARenewalOvertakesLeavesTheOthersCovered(t *testing.T) {
	const brief = time.Second
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithWatchdogTimeout(brief))
		l := p.GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		time.Sleep(brief / 3) // renewed once
		for b.TTL(t, "orders") > brief*3/4 {
			time.Sleep(time.Millisecond)
		}
		p.Withhold(1)
		_ = inner.Extend(t.Context(), 10*time.Millisecond) // its level may be over when it is answered
		for before := outer.ExpiresAt(); outer.ExpiresAt().Before(before.Add(brief / 8)); {
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, 1, p.Deliver(t))
		require.LessOrEqual(t, time.Until(outer.ExpiresAt()), b.TTL(t, "orders"))
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}
