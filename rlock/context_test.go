package rlock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// end is a way for a hold's context to end.
type end struct {
	opts  []rlock.Option
	do    func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, h *rlock.Hold, cancel context.CancelCauseFunc)
	cause error
	err   error
}

func ends() map[string]end {
	return map[string]end{
		"unlocked": {
			cause: rlock.ErrUnlocked, err: context.Canceled,
			do: func(t *testing.T, _ *locktest.Bubble, _ *locktest.Peer, h *rlock.Hold, _ context.CancelCauseFunc) {
				locktest.Unlock(t, h)
			},
		},
		"deleted": {
			cause: rlock.ErrLost, err: context.Canceled,
			do: func(t *testing.T, b *locktest.Bubble, _ *locktest.Peer, _ *rlock.Hold, _ context.CancelCauseFunc) {
				b.Delete(t, "orders")
				time.Sleep(third)
			},
		},
		"lease over": {
			cause: rlock.ErrLost, err: context.Canceled, opts: []rlock.Option{rlock.WithFixedLease(time.Second)},
			do: func(*testing.T, *locktest.Bubble, *locktest.Peer, *rlock.Hold, context.CancelCauseFunc) {
				time.Sleep(time.Second)
			},
		},
		"unreachable": {
			cause: rlock.ErrLost, err: context.Canceled,
			do: func(_ *testing.T, _ *locktest.Bubble, p *locktest.Peer, _ *rlock.Hold, _ context.CancelCauseFunc) {
				p.Blackhole(true)
				time.Sleep(lease)
			},
		},
		"closed": {
			cause: redlatch.ErrClosed, err: context.Canceled,
			do: func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, h *rlock.Hold, _ context.CancelCauseFunc) {
				assert.NoError(t, p.Close())
				assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			},
		},
		"parent cancelled": {
			cause: assert.AnError, err: context.Canceled,
			do: func(_ *testing.T, _ *locktest.Bubble, _ *locktest.Peer, _ *rlock.Hold, cancel context.CancelCauseFunc) {
				cancel(assert.AnError)
			},
		},
		"parent late": {
			cause: context.DeadlineExceeded, err: context.DeadlineExceeded,
			do: func(*testing.T, *locktest.Bubble, *locktest.Peer, *rlock.Hold, context.CancelCauseFunc) {
				time.Sleep(time.Hour)
			},
		},
	}
}

// inEnd runs test with a hold that is about to end.
func inEnd(t *testing.T, e end, test func(t *testing.T, h *rlock.Hold, end func())) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		parent, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		parent, cancel := context.WithCancelCause(parent)
		defer cancel(nil)
		h := locktest.Acquire(t, parent, p.GetLock("orders"), e.opts...)
		test(t, h, func() {
			e.do(t, b, p, h, cancel)
			synctest.Wait()
		})
	})
}

func TestContextTellsWhyItEnded(t *testing.T) {
	for name, e := range ends() {
		t.Run(name, func(t *testing.T) {
			inEnd(t, e, func(t *testing.T, h *rlock.Hold, end func()) {
				done := h.Context().Done()
				assert.NoError(t, context.Cause(h.Context()))
				end()
				<-done
				assert.ErrorIs(t, context.Cause(h.Context()), e.cause)
				assert.Equal(t, e.err, h.Context().Err())
				for _, other := range []error{rlock.ErrLost, rlock.ErrUnlocked, redlatch.ErrClosed, assert.AnError} {
					if other != e.cause { //nolint:errorlint // one sentinel of a list
						assert.NotErrorIs(t, context.Cause(h.Context()), other)
					}
				}
			})
		})
	}
}

func TestErrAndCauseWorkWithoutDone(t *testing.T) {
	for name, e := range ends() {
		t.Run(name, func(t *testing.T) {
			inEnd(t, e, func(t *testing.T, h *rlock.Hold, end func()) {
				assert.NoError(t, h.Context().Err())
				end()
				assert.Equal(t, e.err, h.Context().Err())
				assert.ErrorIs(t, context.Cause(h.Context()), e.cause)
				select {
				case <-h.Context().Done():
				default:
					assert.Fail(t, "Done asked for after the end is closed")
				}
				assert.Equal(t, e.err, h.Context().Err())
			})
		})
	}
}

func TestDerivedContextsGetTheCause(t *testing.T) {
	for name, e := range ends() {
		t.Run(name, func(t *testing.T) {
			inEnd(t, e, func(t *testing.T, h *rlock.Hold, end func()) {
				type key struct{}
				cancelled, cancel := context.WithCancel(h.Context())
				defer cancel()
				timed, cancel := context.WithTimeout(context.WithValue(h.Context(), key{}, 1), 24*time.Hour)
				defer cancel()
				var after error
				context.AfterFunc(h.Context(), func() { after = context.Cause(h.Context()) })
				end()
				synctest.Wait()
				for _, ctx := range []context.Context{cancelled, timed, context.WithValue(h.Context(), key{}, 1), rlock.Detach(h.Context())} {
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), e.cause)
					assert.Equal(t, e.err, ctx.Err())
				}
				assert.ErrorIs(t, after, e.cause)
				late, cancel := context.WithCancel(h.Context())
				defer cancel()
				assert.ErrorIs(t, context.Cause(late), e.cause, "derived after the end")
			})
		})
	}
}

func TestDerivedContextsStartNoGoroutine(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		for _, h := range []*rlock.Hold{outer, inner} {
			synctest.Wait()
			before := runtime.NumGoroutine()
			var cancels []context.CancelFunc
			for range 100 {
				ctx, cancel := context.WithCancel(h.Context())
				cancels = append(cancels, cancel)
				_, cancel = context.WithTimeout(ctx, time.Hour)
				cancels = append(cancels, cancel)
			}
			synctest.Wait()
			assert.Less(t, runtime.NumGoroutine()-before, 50)
			for _, cancel := range cancels {
				cancel()
			}
		}
		locktest.Unlock(t, inner)
		locktest.Unlock(t, outer)
	})
}

func TestHoldsCostNoGoroutine(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var holds []*rlock.Hold
		for i := range 10 {
			holds = append(holds, locktest.Acquire(t, t.Context(), p.GetLock("warm"+time.Duration(i).String())))
		}
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range 200 {
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"+time.Duration(i).String()))
			_ = h.Context().Done()
			holds = append(holds, h)
		}
		synctest.Wait()
		assert.Less(t, runtime.NumGoroutine()-before, 50)
		for _, h := range holds {
			locktest.Unlock(t, h)
		}
	})
}

func TestContextHasTheValuesOfItsParent(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		type key struct{}
		l := b.Peer(t).GetLock("orders")
		h := locktest.Acquire(t, context.WithValue(t.Context(), key{}, "value"), l)
		assert.Equal(t, "value", h.Context().Value(key{}))
		_ = h.Context().Done()
		assert.Equal(t, "value", h.Context().Value(key{}))
		locktest.Unlock(t, h)
		assert.Equal(t, "value", h.Context().Value(key{}))
		assert.Equal(t, h.Context(), h.Context(), "one hold has one context")
		_, ok := h.Context().Deadline()
		assert.False(t, ok)
	})
}

func TestEndOfTheParentLeavesTheLockHeldAndRenewed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		h := locktest.Acquire(t, ctx, b.Peer(t).GetLock("orders"))
		<-h.Context().Done()
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(3 * lease)
		assert.GreaterOrEqual(t, b.TTL(t, "orders"), lease*2/3-moment)
		require.NoError(t, h.Unlock(ctx))
		assert.Empty(t, b.Keys(t))
		assert.ErrorIs(t, context.Cause(h.Context()), context.DeadlineExceeded, "the first end is the cause")
	})
}

func TestLossAfterTheParentsEndKeepsTheFirstCause(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithCancelCause(t.Context())
		h := locktest.Acquire(t, ctx, b.Peer(t).GetLock("orders"))
		cancel(assert.AnError)
		b.Delete(t, "orders")
		time.Sleep(lease)
		assert.ErrorIs(t, context.Cause(h.Context()), assert.AnError)
		assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	})
}

// own is a context whose deadline is that of a hold.
type own struct {
	context.Context
	t    *testing.T
	hold *rlock.Hold
}

func (o own) Deadline() (time.Time, bool) {
	told := make(chan time.Time, 1) // room for the result, so that the goroutine ends in any case
	go func() { told <- o.hold.ExpiresAt() }()
	select {
	case at := <-told:
		return at, true
	case <-time.After(5 * time.Second):
		assert.Fail(o.t, "the context is asked under a mutex")
		return time.Time{}, false
	}
}

func TestUnlockTakesAContextThatAsksTheHold(t *testing.T) {
	locktest.OnServer(t, func(t *testing.T, s *locktest.Server) {
		l := s.Client(t).GetLock(t.Name())
		outer := locktest.Acquire(t, t.Context(), l)
		inner := locktest.Acquire(t, outer.Context(), l)
		require.NoError(t, inner.Unlock(own{t.Context(), t, inner}))
		require.NoError(t, outer.Unlock(own{t.Context(), t, outer}))
	})
}
