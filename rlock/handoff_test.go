package rlock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

const budget = 2 * time.Millisecond // of a client without options

// queue has a call wait for a lock, and returns when it stands in the line.
func queue(t *testing.T, l rlock.Locker, opts ...rlock.Option) <-chan locktest.Outcome {
	t.Helper()
	waiting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context(), opts...) })
	synctest.Wait()
	return waiting
}

func TestHandOffCostsNoCommand(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		first, deadline := h, h.ExpiresAt()
		for range 10 {
			waiting := queue(t, l)
			sent := len(p.Sent())
			locktest.Unlock(t, h)
			next := locktest.Next(t, waiting)
			require.Len(t, p.Sent(), sent, "no round trip")
			require.Equal(t, first.Owner(), next.Owner(), "the owner id goes with it")
			require.Equal(t, deadline, next.ExpiresAt(), "and so does the deadline")
			require.ErrorIs(t, context.Cause(h.Context()), rlock.ErrUnlocked)
			require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrNotHeld)
			locktest.Live(t, next.Context())
			h = next
		}
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		assert.Equal(t, map[string]string{h.Owner(): "1"}, b.Hash(t, "orders"))
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

func TestHandedOnHoldNestsAndIsLost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		waiting := queue(t, l)
		locktest.Unlock(t, h)
		next := locktest.Next(t, waiting)
		inner := locktest.Acquire(t, next.Context(), l)
		assert.Equal(t, map[string]string{h.Owner(): "2"}, b.Hash(t, "orders"))
		_, err := l.TryLock(context.WithoutCancel(h.Context()))
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "the hold before is no lineage any more")
		b.Delete(t, "orders")
		locktest.Ended(t, inner.Context(), rlock.ErrLost)
		locktest.Ended(t, next.Context(), rlock.ErrLost)
		assert.ErrorIs(t, context.Cause(h.Context()), rlock.ErrUnlocked)
	})
}

// F25
func TestRefusedReleaseOfAHoldThatNobodyTookGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
		var refused atomic.Bool
		b.Mini.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
			first := strings.HasPrefix(cmd, "EVAL") && !refused.Swap(true)
			if first {
				p.WriteError("NOPERM this user has no permissions")
			}
			return first
		})
		(*hold.Hold)(h).Inside().(interface{ Pass() }).Pass()
		time.Sleep(time.Second)
		assert.True(t, refused.Load())
		assert.Empty(t, b.Keys(t))
	})
}

func TestHandOffEndsWithItsBudget(t *testing.T) {
	for _, tc := range []struct {
		name   string
		opts   []redlatch.Option
		held   time.Duration
		handed bool
	}{
		{"within the default", nil, budget - time.Microsecond, true},
		{"at the default", nil, budget, false},
		{"turned off", []redlatch.Option{redlatch.WithHandoffBudget(0)}, 0, false},
		{"within 50 ms", []redlatch.Option{redlatch.WithHandoffBudget(50 * time.Millisecond)}, 49 * time.Millisecond, true},
		{"beyond 50 ms", []redlatch.Option{redlatch.WithHandoffBudget(50 * time.Millisecond)}, 51 * time.Millisecond, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t, tc.opts...).GetLock("orders")
				h := locktest.Acquire(t, t.Context(), l)
				time.Sleep(tc.held)
				waiting := queue(t, l)
				locktest.Unlock(t, h)
				next := locktest.Next(t, waiting)
				assert.Equal(t, tc.handed, next.Owner() == h.Owner())
				locktest.Unlock(t, next)
			})
		})
	}
}

func TestOnlyPlainHoldsAreHandedOn(t *testing.T) {
	special := map[string]rlock.Option{
		"lease":    rlock.WithFixedLease(time.Minute),
		"max hold": rlock.WithMaxHold(time.Minute),
	}
	for name, opt := range special {
		t.Run("from "+name, func(t *testing.T) { notHandedOn(t, "plain", []rlock.Option{opt}, nil) })
		t.Run("to "+name, func(t *testing.T) { notHandedOn(t, "plain", nil, []rlock.Option{opt}) })
	}
	t.Run("fenced", func(t *testing.T) { notHandedOn(t, "fenced", nil, nil) })
}

func notHandedOn(t *testing.T, kind string, from, to []rlock.Option) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		if kind == "fenced" {
			l = p.GetFencedLock("orders")
		}
		h := locktest.Acquire(t, t.Context(), l, from...)
		waiting := queue(t, l, to...)
		locktest.Unlock(t, h)
		next := locktest.Next(t, waiting)
		assert.NotEqual(t, h.Owner(), next.Owner())
		assert.Equal(t, map[string]string{next.Owner(): "1"}, b.Hash(t, "orders"))
		if kind == "fenced" {
			assert.Greater(t, next.Token(), h.Token())
		}
		locktest.Unlock(t, next)
	})
}

func TestPlainHoldIsNotHandedToAFencedLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		waiting := queue(t, p.GetFencedLock("orders"))
		locktest.Unlock(t, h)
		next := locktest.Next(t, waiting)
		assert.Positive(t, next.Token())
		waiting = queue(t, p.GetLock("orders"))
		locktest.Unlock(t, next)
		last := locktest.Next(t, waiting)
		assert.Zero(t, last.Token())
		assert.NotEqual(t, next.Owner(), last.Owner())
		locktest.Unlock(t, last)
	})
}

func TestNestedLevelsAreNotHandedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		waiting := queue(t, l)
		locktest.Unlock(t, outer)
		synctest.Wait()
		require.Empty(t, waiting, "one level is still held")
		locktest.Unlock(t, inner)
		next := locktest.Next(t, waiting)
		assert.Equal(t, map[string]string{next.Owner(): "1"}, b.Hash(t, "orders"), "the waiter has one level")
		locktest.Unlock(t, next)
	})
}

func TestExtendedHoldIsNotHandedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		require.NoError(t, h.Extend(t.Context(), time.Minute))
		waiting := queue(t, l)
		locktest.Unlock(t, h)
		next := locktest.Next(t, waiting)
		assert.NotEqual(t, h.Owner(), next.Owner())
		assert.Equal(t, lease, b.TTL(t, "orders"))
		locktest.Unlock(t, next)
	})
}

func TestNothingIsHandedOnAfterAFailedRenewal(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithWatchdogTimeout(900*time.Millisecond), redlatch.WithHandoffBudget(900*time.Millisecond))
		l := p.GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		p.Refuse(true)
		p.Cut()
		time.Sleep(500 * time.Millisecond) // a renewal has failed by now, and a third of the lease is left
		waiting := queue(t, l)
		require.Error(t, h.Unlock(t.Context()))
		p.Refuse(false)
		o := locktest.Fetch(t, waiting)
		if o.Err != nil { // it has asked Redis before that
			return
		}
		assert.NotEqual(t, h.Owner(), o.Hold.Owner())
		locktest.Unlock(t, o.Hold)
	})
}

// F1
func TestHoldThatWasTakenOverIsNotHandedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		locktest.Free(t, l)
		time.Sleep(1500 * time.Microsecond) // between two ticks of the wheel
		before := locktest.Acquire(t, t.Context(), l)
		waiting := queue(t, l)
		after := locktest.Acquire(t, t.Context(), l, rlock.WithTakeOver(before.Owner()))
		require.ErrorIs(t, before.Unlock(t.Context()), rlock.ErrNotHeld)
		synctest.Wait()
		require.Empty(t, waiting, "another call has the lock")
		locktest.Live(t, after.Context())
		locktest.Unlock(t, after)
		locktest.Unlock(t, locktest.Next(t, waiting))
		assert.Empty(t, b.Keys(t))
	})
}

func TestHandOffDoesNotStarveOtherClients(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		busy, other := b.Peer(t), b.Peer(t)
		var stop atomic.Bool
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for !stop.Load() {
					assert.NoError(t, busy.GetLock("orders").Do(t.Context(), func(context.Context) error {
						time.Sleep(100 * time.Microsecond)
						return nil
					}))
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		for range 20 {
			start := time.Now()
			h := locktest.Acquire(t, t.Context(), other.GetLock("orders"))
			require.Less(t, time.Since(start), 10*budget, "waited for the budget of one client, not for its queue")
			locktest.Unlock(t, h)
		}
		stop.Store(true)
		wg.Wait()
	})
}

// turn returns a client without hand-off: first holds the lock, and a waiter waits for its release.
func turn(t *testing.T, b *locktest.Bubble, opts ...redlatch.Option) (p *locktest.Peer, first *rlock.Hold, second <-chan locktest.Outcome) {
	t.Helper()
	p = b.Peer(t, append(opts, redlatch.WithHandoffBudget(0))...)
	l := p.GetLock("orders")
	before := locktest.Acquire(t, t.Context(), l)
	waiting := queue(t, l)
	second = queue(t, l)
	locktest.Unlock(t, before)
	return p, locktest.Next(t, waiting), second
}

// F2
func TestReleaseWhoseReplyIsLostLetsTheNextWaiterGoOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, first, waiting := turn(t, b)
		p.LoseReplies(1)
		locktest.Unlock(t, first)
		second := locktest.Next(t, waiting)
		assert.Equal(t, map[string]string{second.Owner(): "1"}, b.Hash(t, "orders"))
		locktest.Unlock(t, second)
		assert.Empty(t, b.Keys(t))
	})
}

func TestReleaseOfALostLockIsNotHeldAndTheNextWaiterGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		_, first, waiting := turn(t, b)
		b.Delete(t, "orders")
		require.ErrorIs(t, first.Unlock(t.Context()), rlock.ErrNotHeld)
		locktest.Unlock(t, locktest.Next(t, waiting))
		assert.Empty(t, b.Keys(t))
	})
}

func TestReleaseIsNotKeptByAWaiterThatGaveUp(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithHandoffBudget(0))
		l := p.GetLock("orders")
		before := locktest.Acquire(t, t.Context(), l)
		waiting := queue(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		gone := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx) })
		synctest.Wait()
		locktest.Unlock(t, before)
		first := locktest.Next(t, waiting)

		p.Blackhole(true)
		unlocked := make(chan error, 1) // one answer
		go func() { unlocked <- first.Unlock(t.Context()) }()
		synctest.Wait()
		cancel()
		outcome := <-gone
		require.ErrorIs(t, outcome.Err, context.Canceled)
		p.Blackhole(false)
		require.NoError(t, <-unlocked)
		time.Sleep(time.Second)
		assert.Empty(t, b.Keys(t))
	})
}

func TestCloseDuringAReleaseLeavesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, first, waiting := turn(t, b)
		p.Blackhole(true)
		unlocked := make(chan error, 1) // one answer
		go func() { unlocked <- first.Unlock(t.Context()) }()
		synctest.Wait()
		closed := make(chan error, 1) // one answer
		go func() { closed <- p.Close() }()
		synctest.Wait()
		require.ErrorIs(t, (<-waiting).Err, redlatch.ErrClosed)
		p.Blackhole(false)
		require.NoError(t, <-unlocked)
		require.NoError(t, <-closed)
		assert.Empty(t, b.Keys(t))
	})
}

func TestCloseWithoutGraceDuringAReleaseLeavesNothing(t *testing.T) {
	for name, lost := range map[string]func(p *locktest.Peer){
		"its answer": func(p *locktest.Peer) { p.HangReplies(1) },
		"everything": func(p *locktest.Peer) {
			p.Blackhole(true)
			time.AfterFunc(time.Second, func() { p.Blackhole(false) })
		},
	} {
		for _, opts := range [][]redlatch.Option{nil, {redlatch.WithAbandonOnClose()}} {
			t.Run(name+" abandon "+strconv.Itoa(len(opts)), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p, first, waiting := turn(t, b, append(opts, redlatch.WithCloseGrace(0))...)
					third := queue(t, p.GetLock("orders"))
					locktest.Unlock(t, first) // from here on Redis knows the script
					second := locktest.Next(t, waiting)
					lost(p)
					unlocked := make(chan error, 1) // one answer
					go func() { unlocked <- second.Unlock(t.Context()) }()
					synctest.Wait()
					require.NoError(t, p.Close())
					assert.Empty(t, b.Keys(t))
					require.ErrorIs(t, locktest.Fetch(t, third).Err, redlatch.ErrClosed)
					if err := <-unlocked; err != nil { // its answer was lost
						require.True(t, errors.Is(err, redlatch.ErrUnknown) || errors.Is(err, redlatch.ErrClosed), err)
					}
				})
			})
		}
	}
}
