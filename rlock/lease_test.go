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

const (
	lease  = 30 * time.Second // of a client without options
	third  = lease / 3
	tick   = time.Millisecond // of the wheel: what it does is up to that much late
	moment = 20 * time.Millisecond
)

// margin is how long before the end of a lease its contexts end.
func margin(lease time.Duration) time.Duration { return max(lease/100, 2*time.Millisecond) }

// endsAt waits until a context has ended, and requires when and why. It is never early, and at most a tick late.
func endsAt(t *testing.T, ctx context.Context, at time.Time, cause error) {
	t.Helper()
	<-ctx.Done()
	assert.ErrorIs(t, context.Cause(ctx), cause)
	assert.Error(t, ctx.Err())
	late := time.Since(at)
	assert.GreaterOrEqual(t, late, time.Duration(0), "the context ended early")
	assert.LessOrEqual(t, late, tick, "the context ended late")
}

func TestAcquisitionSetsTheLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l, short := b.Peer(t).GetLock("orders"), b.Peer(t, redlatch.WithWatchdogTimeout(9*time.Second)).GetLock("short")
		h := locktest.Acquire(t, t.Context(), l)
		assert.Equal(t, lease, b.TTL(t, "orders"))
		assert.Equal(t, time.Now().Add(lease-margin(lease)), h.ExpiresAt().Round(0))
		locktest.Unlock(t, h)
		for _, d := range []time.Duration{10 * time.Millisecond, time.Second, 24 * time.Hour} {
			h = locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(d))
			assert.Equal(t, d, b.TTL(t, "orders"))
			assert.Equal(t, time.Now().Add(d-margin(d)), h.ExpiresAt().Round(0))
			locktest.Unlock(t, h)
		}
		h = locktest.Acquire(t, t.Context(), short)
		assert.Equal(t, 9*time.Second, b.TTL(t, "short"))
		locktest.Unlock(t, h)
	})
}

func TestRenewalKeepsTwoThirdsOfTheLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		before, scripts, jumps := lease, p.Scripts(), 0
		for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(100 * time.Millisecond) {
			left := b.TTL(t, "orders")
			require.GreaterOrEqual(t, left, lease*2/3-100*time.Millisecond)
			if left > before {
				jumps++
				require.LessOrEqual(t, lease-left, 100*time.Millisecond, "a renewal sets the whole lease")
			}
			before = left
		}
		assert.InDelta(t, 10*time.Minute/third, jumps, 3, "renewed every third of the lease")
		assert.InDelta(t, jumps, p.Scripts()-scripts, 4, "one command each, but for the first, which also asks for the replication id")
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
		time.Sleep(2 * lease)
		assert.Empty(t, b.Keys(t), "nothing is renewed after the release")
		assert.InDelta(t, jumps+2, p.Scripts()-scripts, 4)
	})
}

func TestDeadlineMovesWithRenewal(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
		first := h.ExpiresAt()
		for range 10 {
			time.Sleep(third + tick)
			inRedis := time.Now().Add(b.TTL(t, "orders"))
			assert.WithinDuration(t, inRedis.Add(-margin(lease)), h.ExpiresAt(), moment)
			assert.False(t, h.ExpiresAt().After(inRedis), "never promises more than Redis keeps")
		}
		assert.Greater(t, h.ExpiresAt().Sub(first), 9*third)
		_, bounded := h.Context().Deadline()
		assert.False(t, bounded, "the end of a lease that moves is no deadline")
		locktest.Unlock(t, h)
	})
}

func TestFixedLeaseEndsAndIsNotRenewed(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second, 3 * time.Minute, 24 * time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				start := time.Now()
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"), rlock.WithFixedLease(d))
				scripts := p.Scripts()
				time.Sleep(d / 2)
				assert.Equal(t, d-d/2, b.TTL(t, "orders"))
				assert.Equal(t, scripts, p.Scripts(), "nothing was sent meanwhile")
				endsAt(t, h.Context(), start.Add(d-margin(d)), rlock.ErrLost)
				assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
				assert.ErrorIs(t, h.Extend(t.Context(), d), rlock.ErrLost)
			})
		})
	}
}

func TestMaxHoldBoundsRenewal(t *testing.T) {
	for _, most := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second, lease, 45 * time.Second, 5 * time.Minute} {
		t.Run(most.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				start := time.Now()
				h, err := b.Peer(t).GetLock("orders").Lock(t.Context(), rlock.WithMaxHold(most), rlock.WithWait(time.Second))
				require.NoError(t, err)
				<-h.Context().Done()
				held := time.Since(start)
				assert.LessOrEqual(t, held, most)
				assert.GreaterOrEqual(t, held, most-margin(lease)-2*tick)
				assert.Positive(t, held)
				assert.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost)
				time.Sleep(most - held + tick)
				assert.Empty(t, b.Keys(t), "Redis keeps it no longer")
			})
		})
	}
}

func TestMaxHoldMeetsLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		start := time.Now()
		h := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Second), rlock.WithMaxHold(time.Minute))
		endsAt(t, h.Context(), start.Add(time.Second-margin(time.Second)), rlock.ErrLost)
		time.Sleep(time.Second)
		start = time.Now()
		h = locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Minute), rlock.WithMaxHold(2*time.Second))
		<-h.Context().Done()
		assert.LessOrEqual(t, time.Since(start), 2*time.Second, "the hold is lost 2 s after it was acquired")
	})
}

func TestDeletionEndsTheContextAtTheNextRenewal(t *testing.T) {
	takers := map[string]func(*testing.T, *locktest.Bubble){
		"DEL": func(t *testing.T, b *locktest.Bubble) { b.Delete(t, "orders") },
		"ForceUnlock": func(t *testing.T, b *locktest.Bubble) {
			freed, err := b.Peer(t).GetLock("orders").ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, freed)
		},
		"somebody else's": func(t *testing.T, b *locktest.Bubble) {
			b.Delete(t, "orders")
			b.Foreign(t, "orders", time.Hour)
		},
		"another type": func(t *testing.T, b *locktest.Bubble) {
			require.NoError(t, b.Redis.Set(t.Context(), "orders", "data", 0).Err())
		},
	}
	for name, take := range takers {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
				time.Sleep(lease + lease/6)
				take(t, b)
				before := b.Mini.Dump()
				start := time.Now()
				<-h.Context().Done()
				assert.LessOrEqual(t, time.Since(start), third, "at the latest a third of the lease later")
				assert.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost)
				assert.Contains(t, context.Cause(h.Context()).Error(), `"orders"`)
				assert.Equal(t, context.Canceled, h.Context().Err())
				synctest.Wait()
				assert.Equal(t, before, b.Mini.Dump(), "whoever has the name now is left alone")
			})
		})
	}
}

func TestUnreachableRedisEndsTheContextBeforeTheLease(t *testing.T) {
	breaks := map[string]func(*locktest.Peer){
		"silent":  func(p *locktest.Peer) { p.Blackhole(true) },
		"refused": func(p *locktest.Peer) { p.Refuse(true); p.Cut() },
	}
	for name, breakOff := range breaks {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
				child, cancel := context.WithCancel(h.Context())
				defer cancel()
				time.Sleep(2 * lease)
				synctest.Wait() // no renewal is in flight
				breakOff(p)
				deadline := h.ExpiresAt()
				endsAt(t, child, deadline, rlock.ErrLost)
				assert.Contains(t, context.Cause(child).Error(), `"orders"`)
				assert.InDelta(t, margin(lease), b.TTL(t, "orders"), float64(2*tick), "Redis still has it")
				locktest.Refused(t, b.Peer(t).GetLock("orders"))
				assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			})
		})
	}
}

func TestRenewalIsRetriedWithinTheLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		for range 10 {
			p.Blackhole(true)
			time.Sleep(lease / 2)
			p.Blackhole(false)
			time.Sleep(third / 2)
			locktest.Live(t, h.Context())
			require.Greater(t, b.TTL(t, "orders"), lease/2, "renewed once Redis is back")
		}
		p.LoseReplies(3)
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
	})
}

func TestOneUnreachableClientDoesNotHoldUpOthers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		gone, alive := b.Peer(t), b.Peer(t)
		h := locktest.Acquire(t, t.Context(), gone.GetLock("orders"))
		gone.Blackhole(true)
		waiting := locktest.Begin(func() (*rlock.Hold, error) { return alive.GetLock("orders").Lock(t.Context()) })
		o := <-waiting
		require.NoError(t, o.Err)
		assert.Error(t, h.Context().Err(), "the one before has heard of its loss")
		assert.InDelta(t, lease, o.After, float64(moment), "acquired when the lease ends")
		locktest.Unlock(t, o.Hold)
	})
}

func TestHoldsOfOneClientAreRenewedTogether(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		const holds = 500
		var all []*rlock.Hold
		for i := range holds {
			all = append(all, locktest.Acquire(t, t.Context(), p.GetLock(string(rune('a'+i%26))+time.Duration(i).String())))
		}
		time.Sleep(2 * lease)
		scripts := p.Scripts()
		time.Sleep(lease)
		assert.Less(t, p.Scripts()-scripts, 3*holds/4, "renewals share commands")
		for _, h := range all {
			require.NoError(t, h.Context().Err())
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}
