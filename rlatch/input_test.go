package rlatch_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlatch"
)

// calls are all methods that may fail, each with an argument that is good.
var calls = map[string]func(ctx context.Context, l *rlatch.Latch) error{
	"TrySetCount": func(ctx context.Context, l *rlatch.Latch) error {
		_, err := l.TrySetCount(ctx, 1)
		return err
	},
	"TrySetCountOnce": func(ctx context.Context, l *rlatch.Latch) error {
		_, err := l.TrySetCountOnce(ctx, 1, time.Minute)
		return err
	},
	"CountDown":   func(ctx context.Context, l *rlatch.Latch) error { return l.CountDown(ctx) },
	"CountDownBy": func(ctx context.Context, l *rlatch.Latch) error { return l.CountDownBy(ctx, 2) },
	"CountDownOnce": func(ctx context.Context, l *rlatch.Latch) error {
		_, err := l.CountDownOnce(ctx, "a")
		return err
	},
	"Count": func(ctx context.Context, l *rlatch.Latch) error {
		_, err := l.Count(ctx)
		return err
	},
	"Await": func(ctx context.Context, l *rlatch.Latch) error { return l.Await(ctx) },
	"Delete": func(ctx context.Context, l *rlatch.Latch) error {
		_, err := l.Delete(ctx)
		return err
	},
}

func TestBadInputIsErrInvalidBeforeAnyIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), cancelled, nil} {
			bad := locktest.BadNames()
			bad["hash tag"] = "{shop}:orders"
			if ctx == nil {
				bad["nil context"] = "orders"
			}
			for what, name := range bad {
				for verb, call := range calls {
					require.ErrorIs(t, call(ctx, p.GetCountDownLatch(name)), redlatch.ErrInvalid, "%s: %s", verb, what)
				}
			}
			l := p.GetCountDownLatch("orders")
			for _, n := range []int{0, -1, math.MinInt, math.MaxInt32 + 1, math.MaxInt} {
				_, err := l.TrySetCount(ctx, n)
				require.ErrorIs(t, err, redlatch.ErrInvalid, "TrySetCount of %d", n)
				_, err = l.TrySetCountOnce(ctx, n, time.Minute)
				require.ErrorIs(t, err, redlatch.ErrInvalid, "TrySetCountOnce of %d", n)
				require.ErrorIs(t, l.CountDownBy(ctx, n), redlatch.ErrInvalid, "CountDownBy %d", n)
			}
			for _, ttl := range []time.Duration{-1, 0, time.Millisecond - 1, math.MaxInt64} {
				_, err := l.TrySetCountOnce(ctx, 1, ttl)
				require.ErrorIs(t, err, redlatch.ErrInvalid, "TrySetCountOnce for %v", ttl)
			}
			for _, participant := range []string{"", strings.Repeat("x", 513)} {
				_, err := l.CountDownOnce(ctx, participant)
				require.ErrorIs(t, err, redlatch.ErrInvalid)
			}
		}
		assert.Empty(t, p.Sent())
		tagged := b.Peer(t, redlatch.WithNamePrefix("{app}:"))
		require.ErrorIs(t, tagged.GetCountDownLatch("orders").CountDown(t.Context()), redlatch.ErrInvalid)
	})
}

func TestDoneContextDoesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetCountDownLatch("orders")
		set(t, l, 3)
		sent := len(p.Sent())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for verb, call := range calls {
			require.ErrorIs(t, call(ctx, l), context.Canceled, verb)
		}
		assert.Len(t, p.Sent(), sent)
		requireCount(t, l, 3)
	})
}

func TestErrorTexts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithNamePrefix("app:"))
		l := p.GetCountDownLatch("orders")
		assert.Equal(t, "orders", l.Name())
		assert.EqualError(t, l.CountDownBy(t.Context(), 0), `rlatch: count down by "orders": invalid argument: count 0 is not between 1 and 2147483647`)
		_, err := l.TrySetCountOnce(t.Context(), 1, time.Microsecond)
		assert.EqualError(t, err, `rlatch: try set count once "orders": invalid argument: the TTL 1µs is not between 1ms and ten years`)
		assert.EqualError(t, p.GetCountDownLatch("{a}").Await(t.Context()), `rlatch: await "{a}": invalid argument: the latch name "app:{a}" has a hash tag`)
	})
}
