package rlock_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// recheck is the longest time until a waiter asks again by itself.
const recheck = 1250 * time.Millisecond

func TestWaitEndsAtItsLimit(t *testing.T) {
	calls := map[string]func(l *rlock.Lock, ctx context.Context, wait rlock.Option) error{
		"Lock": func(l *rlock.Lock, ctx context.Context, wait rlock.Option) error {
			_, err := l.Lock(ctx, wait)
			return err
		},
		"TryLock": func(l *rlock.Lock, ctx context.Context, wait rlock.Option) error {
			_, err := l.TryLock(ctx, wait)
			return err
		},
		"Do": func(l *rlock.Lock, ctx context.Context, wait rlock.Option) error {
			return l.Do(ctx, func(context.Context) error { return assert.AnError }, wait)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				a, other := b.Peer(t), b.Peer(t)
				h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
				for _, wait := range []time.Duration{0, time.Nanosecond, 5 * time.Millisecond, 3 * time.Second, 2 * time.Minute} {
					for _, p := range []*locktest.Peer{a, other} {
						start := time.Now()
						require.ErrorIs(t, call(p.GetLock("orders"), t.Context(), rlock.WithWait(wait)), rlock.ErrNotAcquired)
						require.InDelta(t, wait, time.Since(start), float64(10*time.Microsecond))
					}
				}
				locktest.Live(t, h.Context())
				locktest.Unlock(t, h)
			})
		})
	}
}

func TestContextEndsTheWaitAtItsDeadline(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a, other := b.Peer(t), b.Peer(t)
		h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
		for _, p := range []*locktest.Peer{a, other} {
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
			start := time.Now()
			_, err := p.GetLock("orders").Lock(ctx, rlock.WithWait(time.Hour))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, rlock.ErrNotAcquired)
			require.Equal(t, 7*time.Second, time.Since(start))
		}
		locktest.Unlock(t, h)
	})
}

func TestTryLockWithoutAWaitAsksOnceOrNotAtAll(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a, other := b.Peer(t), b.Peer(t)
		h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
		locktest.Refused(t, other.GetLock("orders")) // the script is known to the server by now
		mine, theirs := a.Scripts(), other.Scripts()
		locktest.Refused(t, a.GetLock("orders"))
		locktest.Refused(t, other.GetLock("orders"))
		assert.Equal(t, mine, a.Scripts(), "this client knows that it holds the lock")
		assert.Equal(t, theirs+1, other.Scripts())
		locktest.Unlock(t, h)
	})
}

func TestPairCostsTwoCommands(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for _, l := range []*rlock.Lock{p.GetLock("orders"), p.GetFencedLock("fenced")} {
			locktest.Free(t, l)
			before := len(p.Sent())
			locktest.Unlock(t, locktest.Acquire(t, t.Context(), l))
			assert.Equal(t, []string{"evalsha", "evalsha"}, p.Sent()[before:])
		}
	})
}

func TestWaiterWakesOnRelease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a, other := b.Peer(t), b.Peer(t)
		for range 20 {
			h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
			waiting := locktest.Begin(func() (*rlock.Hold, error) { return other.GetLock("orders").Lock(t.Context()) })
			time.Sleep(100 * time.Millisecond)
			locktest.Unlock(t, h)
			o := <-waiting
			require.NoError(t, o.Err)
			require.Less(t, o.After, 105*time.Millisecond)
			locktest.Unlock(t, o.Hold)
		}
	})
}

func TestReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a := b.Peer(t)
		for range 100 { // whatever the order in which the goroutines run
			h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
			waiting := locktest.Begin(func() (*rlock.Hold, error) { return b.Peer(t).GetLock("orders").Lock(t.Context()) })
			locktest.Unlock(t, h)
			o := <-waiting
			require.NoError(t, o.Err)
			require.Less(t, o.After, 10*time.Millisecond)
			locktest.Unlock(t, o.Hold)
		}
	})
}

func TestWaiterWakesWhenTheLeaseEnds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for _, left := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
			b.Foreign(t, "orders", left)
			start := time.Now()
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
			assert.InDelta(t, left, time.Since(start), float64(3*time.Millisecond))
			locktest.Unlock(t, h)
		}
	})
}

func TestWaiterNoticesASilentDeletionWithinASecond(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		t.Run("TTL "+ttl.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				b.Foreign(t, "orders", ttl)
				waiting := locktest.Begin(func() (*rlock.Hold, error) { return b.Peer(t).GetLock("orders").Lock(t.Context()) })
				time.Sleep(10 * time.Second)
				b.Delete(t, "orders")
				o := <-waiting
				require.NoError(t, o.Err)
				assert.Less(t, o.After, 10*time.Second+recheck+moment)
				locktest.Unlock(t, o.Hold)
			})
		})
	}
}

func TestWaiterCostsOneCommandASecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		b.Foreign(t, "orders", 0)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := p.GetLock("orders").Lock(ctx)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(10 * time.Second)
		before := p.Scripts()
		time.Sleep(100 * time.Second)
		assert.InDelta(t, 100, p.Scripts()-before, 25, "20 waiters of one client ask like one")
		assert.Equal(t, 2, p.Count("subscribe"), "to the lock's channel and to the client's own")
		cancel()
		wg.Wait()
		time.Sleep(40 * time.Second)
		assert.Empty(t, b.Mini.PubSubChannels("*"), "no subscription is left behind")
	})
}

func TestLocalWaitersAreServedInOrder(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{
		"handed on": {},
		"released":  {redlatch.WithHandoffBudget(0)},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, opts...)
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
				var mu sync.Mutex // guards order
				var order []string
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() {
						assert.NoError(t, p.GetLock("orders").Do(t.Context(), func(context.Context) error {
							mu.Lock()
							defer mu.Unlock()
							order = append(order, strconv.Itoa(i))
							return nil
						}))
					})
					synctest.Wait()
				}
				locktest.Unlock(t, h)
				wg.Wait()
				assert.True(t, slices.IsSorted(order), "%v", order)
				assert.Len(t, order, 10)
			})
		})
	}
}

func TestWaiterThatGivesUpPassesItsWakeUpOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a, other := b.Peer(t), b.Peer(t)
		for range 100 { // whatever the order in which the goroutines run
			h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
			ctx, cancel := context.WithCancel(t.Context())
			first := locktest.Begin(func() (*rlock.Hold, error) { return other.GetLock("orders").Lock(ctx) })
			synctest.Wait()
			second := locktest.Begin(func() (*rlock.Hold, error) { return other.GetLock("orders").Lock(t.Context()) })
			synctest.Wait()
			go cancel()
			locktest.Unlock(t, h)
			if o := <-first; o.Err == nil {
				locktest.Unlock(t, o.Hold)
			} else {
				require.ErrorIs(t, o.Err, context.Canceled)
			}
			o := <-second
			require.NoError(t, o.Err)
			require.Less(t, o.After, moment, "it did not have to wait for a re-check")
			locktest.Unlock(t, o.Hold)
		}
	})
}

// panicking is a context whose Err panics from some time on.
type panicking struct {
	context.Context
	from time.Time
}

func (c panicking) Err() error {
	if !time.Now().Before(c.from) {
		panic("boom")
	}
	return c.Context.Err()
}

func TestWaiterThatPanicsLeavesTheQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		ended := make(chan any, 1) // one end
		go func() {
			defer func() { ended <- recover() }()
			_, _ = p.GetLock("orders").Lock(panicking{t.Context(), time.Now().Add(time.Millisecond)})
		}()
		synctest.Wait()
		waiting := queue(t, p.GetLock("orders"))
		require.Equal(t, "boom", <-ended)
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, waiting))
		assert.Empty(t, b.Keys(t))
	})
}

func TestWaiterThatGivesUpPassesAHandOffOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for range 100 { // whatever the order in which the goroutines run
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
			ctx, cancel := context.WithCancel(t.Context())
			first := locktest.Begin(func() (*rlock.Hold, error) { return p.GetLock("orders").Lock(ctx) })
			synctest.Wait()
			second := locktest.Begin(func() (*rlock.Hold, error) { return p.GetLock("orders").Lock(t.Context()) })
			synctest.Wait()
			go cancel()
			locktest.Unlock(t, h)
			if o := <-first; o.Err == nil {
				locktest.Unlock(t, o.Hold)
			}
			o := <-second
			require.NoError(t, o.Err)
			require.Less(t, o.After, moment)
			locktest.Unlock(t, o.Hold)
		}
		synctest.Wait()
		assert.Empty(t, b.Keys(t))
	})
}

func TestWaitersOutliveALostSubscription(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a, other := b.Peer(t), b.Peer(t)
		h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
		waiting := locktest.Begin(func() (*rlock.Hold, error) { return other.GetLock("orders").Lock(t.Context()) })
		time.Sleep(time.Second)
		other.Refuse(true)
		other.Cut()
		time.Sleep(20 * time.Second)
		locktest.Unlock(t, h) // nobody hears it
		other.Refuse(false)
		o := <-waiting
		require.NoError(t, o.Err)
		assert.Less(t, o.After, 21*time.Second+2*recheck, "go-redis itself may take a second to dial again")
		locktest.Unlock(t, o.Hold)
	})
}

func TestWaitOutlastsAnOutageForOneLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		a, other := b.Peer(t), b.Peer(t)
		h := locktest.Acquire(t, t.Context(), a.GetLock("orders"))
		waiting := locktest.Begin(func() (*rlock.Hold, error) { return other.GetLock("orders").Lock(t.Context()) })
		time.Sleep(5 * time.Second)
		other.Refuse(true)
		other.Cut()
		o := <-waiting
		require.Error(t, o.Err)
		require.NotErrorIs(t, o.Err, rlock.ErrNotAcquired)
		assert.InDelta(t, 5*time.Second+lease, o.After, float64(3*time.Second))
		locktest.Unlock(t, h)
	})
}

func TestCertainErrorsOfTheFirstTryAreReturnedAtOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		p := b.Peer(t)
		start := time.Now()
		_, err := p.GetLock("orders").Lock(t.Context())
		require.ErrorContains(t, err, "NOPERM")
		require.NotErrorIs(t, err, redlatch.ErrUnknown)
		b.Mini.SetError("")
		p = b.Peer(t)
		p.Refuse(true)
		_, err = p.GetLock("orders").Lock(t.Context())
		require.ErrorContains(t, err, "refused")
		require.NotErrorIs(t, err, redlatch.ErrUnknown)
		assert.Less(t, time.Since(start), time.Second)
	})
}

func TestCallsEndWithTheirContextWhenRedisIsSilent(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		held := locktest.Acquire(t, t.Context(), p.GetLock("held"))
		p.Blackhole(true)
		const patience = 200 * time.Millisecond
		calls := map[string]func(context.Context) error{
			"Lock":        func(ctx context.Context) error { _, err := l.Lock(ctx); return err },
			"TryLock":     func(ctx context.Context) error { _, err := l.TryLock(ctx); return err },
			"Do":          func(ctx context.Context) error { return l.Do(ctx, func(context.Context) error { return nil }) },
			"IsLocked":    func(ctx context.Context) error { _, err := l.IsLocked(ctx); return err },
			"TTL":         func(ctx context.Context) error { _, err := l.TTL(ctx); return err },
			"ForceUnlock": func(ctx context.Context) error { _, err := p.GetLock("forced").ForceUnlock(ctx); return err },
			"HoldCount": func(ctx context.Context) error {
				within, stop := context.WithTimeout(held.Context(), patience)
				defer stop()
				_, err := p.GetLock("held").HoldCount(within)
				return err
			},
			"nested Lock": func(context.Context) error {
				within, stop := context.WithTimeout(held.Context(), patience)
				defer stop()
				_, err := p.GetLock("held").Lock(within)
				return err
			},
			"Extend": func(ctx context.Context) error { return held.Extend(ctx, time.Hour) },
		}
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			start := time.Now()
			err := call(ctx)
			cancel()
			assert.InDelta(t, patience, time.Since(start), float64(50*time.Millisecond), name)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
		}
		p.Blackhole(false)
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), l))
	})
}

func TestAbandonedTryIsSettled(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		locktest.Free(t, p.GetLock("orders"))
		p.LoseReplies(1)
		_, err := p.GetLock("orders").TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		time.Sleep(moment)
		assert.Empty(t, b.Keys(t), "what was granted unseen is released")
		p.LoseReplies(1)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		assert.Equal(t, map[string]string{h.Owner(): "1"}, b.Hash(t, "orders"))
		p.LoseReplies(1)
		require.NoError(t, h.Unlock(t.Context()), "the release whose reply was lost did it")
		assert.Empty(t, b.Keys(t))
	})
}
