package rsemaphore_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// semaphoreCalls are all methods that may fail, each with an argument that is good.
var semaphoreCalls = map[string]func(ctx context.Context, s *rsemaphore.Semaphore) error{
	"TrySetPermits": func(ctx context.Context, s *rsemaphore.Semaphore) error {
		_, err := s.TrySetPermits(ctx, 1)
		return err
	},
	"Acquire": func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.Acquire(ctx, 1) },
	"TryAcquire": func(ctx context.Context, s *rsemaphore.Semaphore) error {
		_, err := s.TryAcquire(ctx, 1)
		return err
	},
	"TryAcquire with a wait": func(ctx context.Context, s *rsemaphore.Semaphore) error {
		_, err := s.TryAcquire(ctx, 1, rsemaphore.WithWait(time.Hour))
		return err
	},
	"Release": func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.Release(ctx, 1) },
	"Available": func(ctx context.Context, s *rsemaphore.Semaphore) error {
		_, err := s.Available(ctx)
		return err
	},
	"Drain": func(ctx context.Context, s *rsemaphore.Semaphore) error {
		_, err := s.Drain(ctx)
		return err
	},
	"AddPermits": func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.AddPermits(ctx, 1) },
}

func TestSemaphoreBadInputIsErrInvalidBeforeAnyIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), cancelled, nil} {
			bad := map[string]*rsemaphore.Semaphore{
				"max 0":        p.GetSemaphore("s", rsemaphore.WithMax(0)),
				"max below 0":  p.GetSemaphore("s", rsemaphore.WithMax(-1)),
				"max too many": p.GetSemaphore("s", rsemaphore.WithMax(math.MaxInt32+1)),
				"nil option":   p.GetSemaphore("s", nil),
			}
			for what, name := range locktest.BadNames() {
				bad[what] = p.GetSemaphore(name)
			}
			if ctx == nil {
				bad["nil context"] = p.GetSemaphore("s")
			}
			for what, s := range bad {
				for verb, call := range semaphoreCalls {
					require.ErrorIs(t, call(ctx, s), redlatch.ErrInvalid, "%s: %s", verb, what)
				}
			}
			s := p.GetSemaphore("s", rsemaphore.WithMax(9))
			for _, n := range []int{0, -1, math.MinInt, math.MaxInt32 + 1, math.MaxInt} {
				_, set := s.TrySetPermits(ctx, n)
				_, try := s.TryAcquire(ctx, n)
				for verb, err := range map[string]error{
					"TrySetPermits": set, "TryAcquire": try, "Acquire": s.Acquire(ctx, n), "Release": s.Release(ctx, n),
				} {
					require.ErrorIs(t, err, redlatch.ErrInvalid, "%s of %d", verb, n)
				}
			}
			for _, delta := range []int{0, math.MinInt, math.MaxInt} {
				require.ErrorIs(t, s.AddPermits(ctx, delta), redlatch.ErrInvalid)
			}
			for what, opt := range map[string]rsemaphore.AcquireOption{"nil": nil, "wait below 0": rsemaphore.WithWait(-1)} {
				_, err := s.TryAcquire(ctx, 1, opt)
				require.ErrorIs(t, err, redlatch.ErrInvalid, what)
			}
			_, err := s.TryAcquire(ctx, 10)
			require.ErrorIs(t, err, redlatch.ErrInvalid, "more than there are")
		}
		assert.Empty(t, p.Sent())
	})
}

func TestSemaphoreDoneContextTakesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 3)
		sent := len(p.Sent())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for verb, call := range semaphoreCalls {
			if verb != "Release" {
				require.ErrorIs(t, call(ctx, s), context.Canceled, verb)
			}
		}
		assert.Len(t, p.Sent(), sent)
		require.NoError(t, s.Release(ctx, 1), "a deferred release works")
		requireThere(t, s, 4)
	})
}

func TestSemaphoreErrorTexts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithNamePrefix("app:"))
		s := p.GetSemaphore("s", rsemaphore.WithMax(1))
		assert.Equal(t, "s", s.Name())
		give(t, s, 1)
		assert.EqualError(t, s.Release(t.Context(), 1), `rsemaphore: release "s": more permits released than the semaphore may have`)
		assert.EqualError(t, s.Acquire(t.Context(), 2), `rsemaphore: acquire "s": invalid argument: 2 permits are more than the maximum of 1`)
		assert.EqualError(t, s.Acquire(t.Context(), 0), `rsemaphore: acquire "s": invalid argument: count 0 is not between 1 and 2147483647`)
	})
}
