package rlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// unlockLimit is the longest that an Unlock takes.
const unlockLimit = 3 * time.Second

func TestUnlockAfterLossFreesNobody(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
		b.Delete(t, "orders")
		other := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		assert.Equal(t, map[string]string{other.Owner(): "1"}, b.Hash(t, "orders"))
		locktest.Live(t, other.Context())
		locktest.Unlock(t, other)
	})
}

func TestUnlockIsBoundedWhenRedisIsSilent(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name  string
		lease time.Duration
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		want  time.Duration
	}{
		{"no deadline", lease, context.WithCancel, unlockLimit},
		{"a context that is done", lease, func(context.Context) (context.Context, context.CancelFunc) { return done, cancel }, unlockLimit},
		{"a deadline ahead", lease, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, time.Second},
		{"a deadline that is near", lease, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		}, 100 * time.Millisecond},
		{"a deadline that has passed", lease, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, -time.Second)
		}, unlockLimit},
		{"the rest of the lease", 2 * time.Second, context.WithCancel, 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"), rlock.WithFixedLease(tc.lease))
				p.Blackhole(true)
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				start := time.Now()
				err := h.Unlock(ctx)
				assert.InDelta(t, tc.want, time.Since(start), float64(50*time.Millisecond))
				assert.ErrorIs(t, err, redlatch.ErrUnknown)
				assert.ErrorIs(t, context.Cause(h.Context()), rlock.ErrUnlocked, "the hold is over whatever it returned")
				assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			})
		})
	}
}

// unansweredNest nests for an hour in a hold, and hears of no answer.
func unansweredNest(t *testing.T, p *locktest.Peer, outer *rlock.Hold) {
	t.Helper()
	l := p.GetLock("orders")
	locktest.Unlock(t, locktest.Acquire(t, outer.Context(), l)) // Redis knows the script from here on
	p.LoseReplies(1000)
	_, err := l.Lock(outer.Context(), rlock.WithFixedLease(time.Hour), rlock.WithWait(time.Second))
	require.Error(t, err)
	p.LoseReplies(0)
}

func TestUnknownUnlockGoesOnInTheBackground(t *testing.T) {
	for name, held := range map[string]func(t *testing.T, p *locktest.Peer) *rlock.Hold{
		"a lease of its own": func(t *testing.T, p *locktest.Peer) *rlock.Hold {
			return locktest.Acquire(t, t.Context(), p.GetLock("orders"), rlock.WithFixedLease(time.Hour))
		},
		"extended": func(t *testing.T, p *locktest.Peer) *rlock.Hold {
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
			require.NoError(t, h.Extend(t.Context(), time.Hour))
			return h
		},
		"not heard of": func(t *testing.T, p *locktest.Peer) *rlock.Hold {
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
			unansweredNest(t, p, h)
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				h := held(t, p)
				p.Blackhole(true)
				require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrUnknown)
				time.Sleep(2 * lease)
				assert.NotEmpty(t, b.Keys(t))
				p.Blackhole(false)
				time.Sleep(6 * time.Second)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestLostHoldIsReleasedForAsLongAsRedisMayHaveIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		unansweredNest(t, p, h)
		p.Blackhole(true)
		<-h.Context().Done()
		time.Sleep(2 * lease)
		assert.NotEmpty(t, b.Keys(t))
		p.Blackhole(false)
		time.Sleep(6 * time.Second)
		assert.Empty(t, b.Keys(t))
	})
}

// spiteful is a context that is done, and has Redis fall silent, from the moment on at which the lock was granted.
type spiteful struct {
	context.Context
	bubble *locktest.Bubble
	peer   *locktest.Peer
}

func (s spiteful) Done() <-chan struct{} { return nil }

func (s spiteful) Err() error {
	if !s.bubble.Mini.Exists("orders") {
		return nil
	}
	s.peer.Blackhole(true)
	return context.Canceled
}

func TestRefusedGrantIsReleasedForAsLongAsRedisMayHaveIt(t *testing.T) {
	for name, get := range map[string]func(*redlatch.Client, string) rlock.Locker{
		"plain": func(c *redlatch.Client, name string) rlock.Locker { return c.GetLock(name) },
		"fair":  func(c *redlatch.Client, name string) rlock.Locker { return c.GetFairLock(name) },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				_, err := get(p.Client, "orders").Lock(spiteful{t.Context(), b, p}, rlock.WithFixedLease(time.Hour))
				require.ErrorIs(t, err, context.Canceled)
				time.Sleep(3 * lease)
				assert.NotEmpty(t, b.Keys(t))
				p.Blackhole(false)
				time.Sleep(6 * time.Second)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestNothingIsRenewedAfterAnUnlockBegan(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		time.Sleep(lease / 2)
		p.Blackhole(true)
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrUnknown)
		left := b.TTL(t, "orders")
		p.Refuse(true)
		p.Blackhole(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, left-5*time.Second, b.TTL(t, "orders"))
	})
}

func TestExtend(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Millisecond, 5 * time.Second, 2 * time.Minute, 24 * time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
				time.Sleep(lease)
				start := time.Now()
				require.NoError(t, h.Extend(t.Context(), d))
				assert.Equal(t, d, b.TTL(t, "orders"))
				assert.Equal(t, start.Add(d-margin(d)).Round(0), h.ExpiresAt().Round(0))
				scripts := p.Scripts()
				time.Sleep(d / 2)
				assert.Equal(t, scripts, p.Scripts(), "it ends renewal")
				endsAt(t, h.Context(), start.Add(d-margin(d)), rlock.ErrLost)
			})
		})
	}
}

func TestExtendAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"), rlock.WithFixedLease(time.Second))
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, h.Extend(t.Context(), time.Second))
		}
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
	})
}

func TestExtendOfOneLevelLeavesTheOthers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		start := time.Now()
		require.NoError(t, inner.Extend(t.Context(), time.Second))
		assert.Equal(t, lease, b.TTL(t, "orders"), "the longest end among the levels")
		assert.Equal(t, "2", b.Hash(t, "orders")[outer.Owner()])
		endsAt(t, inner.Context(), start.Add(time.Second-margin(time.Second)), rlock.ErrLost)
		time.Sleep(2 * lease)
		locktest.Live(t, outer.Context())
		assert.GreaterOrEqual(t, b.TTL(t, "orders"), lease*2/3-moment, "the outer level is renewed on")
		locktest.Unlock(t, outer)
	})
}

func TestExtendEndsMaxHold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"), rlock.WithMaxHold(time.Second))
		require.NoError(t, h.Extend(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, b.TTL(t, "orders"))
		locktest.Unlock(t, h)
	})
}

func TestUnknownExtensionKeepsMaxHold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l, start := p.GetLock("orders"), time.Now()
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l, rlock.WithMaxHold(5*time.Second))
		p.Refuse(true)
		p.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, inner.Extend(ctx, time.Minute))
		p.Refuse(false)
		endsAt(t, inner.Context(), start.Add(5*time.Second-margin(5*time.Second)), rlock.ErrLost)
		locktest.Live(t, outer.Context())
		locktest.Unlock(t, outer)
	})
}

func TestExtendOfAHoldThatEnded(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		locktest.Unlock(t, h)
		require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrNotHeld)

		h = locktest.Acquire(t, t.Context(), l)
		b.Delete(t, "orders")
		require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost, "before anybody noticed")
		locktest.Ended(t, h.Context(), rlock.ErrLost)
		require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
		assert.Empty(t, b.Keys(t))

		h = locktest.Acquire(t, t.Context(), l)
		b.Delete(t, "orders")
		b.Foreign(t, "orders", time.Minute)
		require.ErrorIs(t, h.Extend(t.Context(), time.Hour), rlock.ErrLost)
		assert.Equal(t, time.Minute, b.TTL(t, "orders"), "another's lease is left alone")
	})
}

func TestExtendWithADoneContextChangesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, h.Extend(ctx, time.Hour), context.Canceled)
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
	})
}

func TestExtendOutlivesABriefOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		p.LoseReplies(2)
		require.NoError(t, h.Extend(t.Context(), time.Minute))
		assert.InDelta(t, time.Minute, b.TTL(t, "orders"), float64(time.Second))
		assert.LessOrEqual(t, time.Until(h.ExpiresAt()), b.TTL(t, "orders"))
		locktest.Unlock(t, h)
	})
}

func TestQueries(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t)
		for _, l := range []*rlock.Lock{p.GetLock("orders"), p.GetFencedLock("orders")} {
			seen := func() (locked bool, left time.Duration) {
				locked, err := other.GetLock("orders").IsLocked(t.Context())
				require.NoError(t, err)
				left, err = other.GetLock("orders").TTL(t.Context())
				require.NoError(t, err)
				return locked, left
			}
			locked, left := seen()
			assert.False(t, locked)
			assert.Zero(t, left)
			h := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Minute))
			time.Sleep(time.Second)
			locked, left = seen()
			assert.True(t, locked)
			assert.Equal(t, 59*time.Second, left)
			assert.Equal(t, 1, levels(t, l, h.Context()))
			assert.Zero(t, levels(t, l, t.Context()))
			assert.Zero(t, levels(t, other.GetLock("orders"), h.Context()))
			assert.Zero(t, levels(t, p.GetLock("invoices"), h.Context()))
			locktest.Unlock(t, h)
			assert.Zero(t, levels(t, l, context.WithoutCancel(h.Context())))
		}
		b.Foreign(t, "endless", 0)
		left, err := p.GetLock("endless").TTL(t.Context())
		require.NoError(t, err)
		assert.Negative(t, left, "a key without an end")
		locked, err := p.GetLock("endless").IsLocked(t.Context())
		require.NoError(t, err)
		assert.True(t, locked)
	})
}

func TestForceUnlock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, operator := b.Peer(t), b.Peer(t)
		freed, err := operator.GetLock("orders").ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.False(t, freed)
		outer := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		inner := locktest.Acquire(t, outer.Context(), p.GetLock("orders"))
		waiting := queue(t, b.Peer(t).GetLock("orders"))
		start := time.Now()
		freed, err = operator.GetLock("orders").ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, freed)
		next := locktest.Next(t, waiting)
		assert.Less(t, time.Since(start), moment, "it wakes who waits")
		<-outer.Context().Done()
		assert.LessOrEqual(t, time.Since(start), third)
		for _, h := range []*rlock.Hold{outer, inner} {
			locktest.Ended(t, h.Context(), rlock.ErrLost)
			require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		}
		assert.Equal(t, map[string]string{next.Owner(): "1"}, b.Hash(t, "orders"))
		locktest.Unlock(t, next)
	})
}

func TestForceUnlockByTheHoldersClient(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l)
		freed, err := l.ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, freed)
		start := time.Now()
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), l))
		assert.LessOrEqual(t, time.Since(start), third, "the line of this client goes on at the next renewal at the latest")
		locktest.Ended(t, h.Context(), rlock.ErrLost)
	})
}

func TestDo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		ctx := t.Context()
		require.NoError(t, l.Do(ctx, func(ctx context.Context) error {
			assert.Equal(t, 1, levels(t, l, ctx))
			return l.Do(ctx, func(ctx context.Context) error {
				assert.Equal(t, 2, levels(t, l, ctx))
				return nil
			})
		}))
		assert.Equal(t, assert.AnError, l.Do(ctx, func(context.Context) error { return assert.AnError }), "fn's error as it is")
		require.ErrorIs(t, l.Do(ctx, nil), redlatch.ErrInvalid)
		assert.PanicsWithValue(t, "boom", func() {
			_ = l.Do(ctx, func(context.Context) error { panic("boom") })
		})
		assert.Empty(t, b.Keys(t))

		err := l.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, rlock.WithFixedLease(time.Second))
		require.ErrorIs(t, err, rlock.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		err = l.Do(ctx, func(context.Context) error { b.Delete(t, "orders"); return nil })
		require.Error(t, err, "the lock was gone at the end: exclusion was not kept")
		require.True(t, errors.Is(err, rlock.ErrLost) || errors.Is(err, rlock.ErrNotHeld), "%v", err)

		cancelled, cancel := context.WithCancel(ctx)
		require.NoError(t, l.Do(cancelled, func(context.Context) error { cancel(); return nil }), "it releases with a done context")
		assert.Empty(t, b.Keys(t))
	})
}

func TestDoTellsOfNoLossButItsOwn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		err := p.GetLock("orders").Do(t.Context(), func(ctx context.Context) error {
			return p.GetLock("stock").Do(ctx, func(ctx context.Context) error {
				b.Delete(t, "orders")
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), rlock.ErrLost)
				return nil
			})
		})
		require.ErrorIs(t, err, rlock.ErrLost)
		assert.ErrorContains(t, err, `"orders"`)
		assert.NotContains(t, err.Error(), "stock")
		assert.Equal(t, 1, strings.Count(err.Error(), "orders"), "told once: %v", err)
		assert.Empty(t, b.Keys(t))
	})
}

func TestDoTellsOfItsOwnLossUnderAnother(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var inner error
		err := p.GetLock("orders").Do(t.Context(), func(ctx context.Context) error {
			inner = p.GetLock("stock").Do(ctx, func(ctx context.Context) error {
				b.Delete(t, "orders")
				<-ctx.Done()
				b.Delete(t, "stock")
				time.Sleep(lease)
				return nil
			})
			return nil
		})
		for name, err := range map[string]error{"orders": err, "stock": inner} {
			require.ErrorIs(t, err, rlock.ErrLost)
			assert.ErrorContains(t, err, name)
		}
		assert.NotContains(t, inner.Error(), "orders")
	})
}

func TestDoLeavesNoHoldAfterGoexit(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		go func() {
			_ = l.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		synctest.Wait()
		assert.Empty(t, b.Keys(t))
	})
}
