package scenario_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

func TestRefusedCallSaysWhoHoldsTheLock(t *testing.T) {
	kinds := maps.Clone(lockKinds)
	kinds["multi"] = func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetMultiLock(c.GetLock(name+"-free"), c.GetFairLock(name))
	}
	kinds["red"] = func(c *redlatch.Client, name string) rlock.Locker { return c.GetRedLock(c.GetLock(name)) }
	kinds["nested"] = func(c *redlatch.Client, name string) rlock.Locker { return c.GetMultiLock(kinds["multi"](c, name)) }
	for kind, get := range kinds {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				holder, caller := b.Peer(t), b.Peer(t)
				theirs, mine := get(holder.Client, "orders"), get(caller.Client, "orders")
				if kind == "reader" {
					mine = rival(kind, caller.Client, "orders")
				}
				hold := locktest.Acquire(t, t.Context(), theirs)
				time.Sleep(time.Second)

				calls := map[string]func(ctx context.Context, opts ...rlock.Option) error{
					"TryLock": func(ctx context.Context, opts ...rlock.Option) error {
						_, err := mine.TryLock(ctx, opts...)
						return err
					},
					"Lock": func(ctx context.Context, opts ...rlock.Option) error {
						_, err := mine.Lock(ctx, append(opts, rlock.WithWait(time.Second))...)
						return err
					},
					"Do": func(ctx context.Context, opts ...rlock.Option) error {
						return mine.Do(ctx, func(context.Context) error { return nil }, append(opts, rlock.WithWait(0))...)
					},
				}
				for verb, call := range calls {
					var taken *rlock.TakenError
					err := call(t.Context())
					require.ErrorIs(t, err, rlock.ErrNotAcquired, verb)
					require.NotErrorAs(t, err, &taken, verb)
					err = call(t.Context(), rlock.WithHolder())
					require.ErrorIs(t, err, rlock.ErrNotAcquired, verb)
					require.ErrorAs(t, err, &taken, verb)
					assert.True(t, taken.Info.Locked, verb)
					assert.Equal(t, "orders", taken.Info.Name, verb)
					assert.Equal(t, holder.ID(), taken.Info.Client, verb)
					assert.Equal(t, 1, taken.Info.Levels, verb)
					assert.InDelta(t, lease.Seconds()-5, taken.Info.Left.Seconds(), 6, verb)
					assert.ErrorContains(t, err, `"orders" is held by "`+taken.Info.Owner+`", with `, verb)
				}
				locktest.Unlock(t, hold)
			})
		})
	}
}

func TestLeaseWithoutEndIsTold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Foreign(t, "orders", 0)
		_, err := b.Peer(t).GetLock("orders").TryLock(t.Context(), rlock.WithHolder())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		assert.ErrorContains(t, err, `, with a lease without end`)
	})
}

func TestHolderThatCannotBeAskedForIsNoError(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		holder, caller := b.Peer(t), b.Peer(t)
		hold := locktest.Acquire(t, t.Context(), holder.GetLock("orders"))
		lock := caller.GetLock("orders")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := lock.Lock(ctx, rlock.WithHolder())
		require.ErrorIs(t, err, context.Canceled)
		var taken *rlock.TakenError
		require.NotErrorAs(t, err, &taken)

		caller.Blackhole(true)
		_, err = lock.TryLock(t.Context(), rlock.WithHolder(), rlock.WithWait(10*time.Second))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorAs(t, err, &taken)
		caller.Blackhole(false)
		locktest.Unlock(t, hold)
	})
}
