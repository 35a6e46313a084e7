package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F15
func TestAnyGoroutineMayUnlock(t *testing.T) {
	r := newRig(t)
	l := r.client(t).GetLock("passed-on")
	for range faulttest.Rounds(t, 100, 10_000) {
		holds := make(chan *rlock.Hold) // closed by the sender
		go func() {
			defer close(holds)
			if h, err := l.Lock(t.Context()); assert.NoError(t, err) {
				holds <- h
			}
		}()
		h := <-holds
		require.NotNil(t, h)
		inner := locktest.Acquire(t, h.Context(), l)
		result := make(chan error, 2) // both results
		go func() { result <- errors.Join(h.Unlock(t.Context()), inner.Unlock(t.Context())) }()
		require.NoError(t, <-result)
		require.NoError(t, r.noKeys(t, "passed-on"))
	}
}

// F15
func TestGoroutinesThatShareALockExcludeEachOther(t *testing.T) {
	r := newRig(t)
	w := faulttest.NewWitness(t, r.server.Addr(), "crowded")
	// Two clients, so that holds pass on within each and compete between both.
	locks := []*rlock.Lock{
		r.client(t, redlatch.WithWatchdogTimeout(lease)).GetLock("crowded"),
		r.client(t, redlatch.WithWatchdogTimeout(lease)).GetLock("crowded"),
	}
	var inside, most, entries atomic.Int64
	enter := func(i int) error {
		who := fmt.Sprint(i)
		return locks[i%len(locks)].Do(t.Context(), func(context.Context) error {
			highest(&most, inside.Add(1))
			defer inside.Add(-1)
			entries.Add(1)
			if i%10 == 0 { // the record takes its time
				w.Enter(who)
				w.Exit(who)
			}
			return nil
		})
	}
	n := faulttest.Rounds(t, 1000, 20_000)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { assert.NoError(t, enter(i)) })
	}
	wg.Wait()
	assert.EqualValues(t, 1, most.Load(), "never two inside")
	assert.EqualValues(t, n, entries.Load())
	assert.Empty(t, w.Overlaps())
}

// F15
func TestOneOfManyUnlocksCounts(t *testing.T) {
	r := newRig(t)
	l := r.client(t).GetLock("once")
	for range faulttest.Rounds(t, 50, 2000) {
		h := locktest.Acquire(t, t.Context(), l)
		var done, refused atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				switch err := h.Unlock(t.Context()); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, rlock.ErrNotHeld):
					refused.Add(1)
				default:
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, done.Load())
		require.EqualValues(t, 7, refused.Load())
	}
}

// misuses are all calls on the handle of a lock that is lost, and what they return: before this side knows of the loss,
// and once it does.
var misuses = []struct {
	name             string
	call             func(ctx context.Context, l *rlock.Lock, h *rlock.Hold) error
	unaware, knowing error
}{
	{
		"Unlock",
		func(ctx context.Context, _ *rlock.Lock, h *rlock.Hold) error { return h.Unlock(ctx) },
		rlock.ErrNotHeld, rlock.ErrNotHeld,
	},
	{
		"Extend",
		func(ctx context.Context, _ *rlock.Lock, h *rlock.Hold) error { return h.Extend(ctx, time.Minute) },
		rlock.ErrLost, rlock.ErrLost,
	},
	{
		"nested Lock",
		func(_ context.Context, l *rlock.Lock, h *rlock.Hold) error {
			_, err := l.TryLock(h.Context())
			return err
		},
		rlock.ErrLost, context.Canceled,
	},
	{
		"Lock by a stranger",
		func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
			_, err := l.Lock(ctx, rlock.WithWait(time.Millisecond))
			return err
		},
		rlock.ErrNotAcquired, rlock.ErrNotAcquired,
	},
}

// F15
func TestLostHandleLeavesTheNextOwnerAlone(t *testing.T) {
	r := newRig(t)
	for _, misuse := range misuses {
		for _, knows := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, knowing: %v", misuse.name, knows), func(t *testing.T) {
				name := fmt.Sprintf("%s-%v", misuse.name, knows)
				length := lease // nothing is renewed meanwhile
				want := misuse.unaware
				if knows {
					length, want = faultLease, misuse.knowing
				}
				mine := r.client(t, redlatch.WithWatchdogTimeout(length)).GetLock(name)
				hold := locktest.Acquire(t, t.Context(), mine)
				next := takeAway(t, r, name)
				if knows {
					locktest.Ended(t, hold.Context(), rlock.ErrLost)
				}
				before, err := r.redis.PTTL(t.Context(), name).Result()
				require.NoError(t, err)
				require.ErrorIs(t, misuse.call(t.Context(), mine, hold), want)
				require.NoError(t, r.holds(t, name, next.Owner(), 1), "the next owner is untouched")
				after, err := r.redis.PTTL(t.Context(), name).Result()
				require.NoError(t, err)
				require.LessOrEqual(t, after, before, "so is its lease")
				require.NoError(t, next.Context().Err())
				require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld)
				locktest.Unlock(t, next)
			})
		}
	}
}

// takeAway deletes a lock and has another client acquire it.
func takeAway(t *testing.T, r *rig, name string) *rlock.Hold {
	t.Helper()
	require.NoError(t, r.redis.Del(t.Context(), name).Err())
	return locktest.Acquire(t, t.Context(), r.direct(t, redlatch.WithWatchdogTimeout(lease)).GetLock(name))
}

// F15
func TestOldHandleOfTheSameClientFreesNobody(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	l := c.GetLock("again")
	old := locktest.Acquire(t, t.Context(), l)
	require.NoError(t, r.redis.Del(t.Context(), "again").Err())
	locktest.Ended(t, old.Context(), rlock.ErrLost)
	hold := locktest.Acquire(t, t.Context(), c.GetLock("again"))
	require.NotEqual(t, old.Owner(), hold.Owner())
	require.ErrorIs(t, old.Unlock(t.Context()), rlock.ErrNotHeld)
	require.ErrorIs(t, old.Extend(t.Context(), time.Minute), rlock.ErrLost)
	require.NoError(t, r.holds(t, "again", hold.Owner(), 1))
	require.NoError(t, hold.Context().Err())
	locktest.Unlock(t, hold)
	redistest.Eventually(t, settled+r.lag.Late(), "nothing is left", func() error { return r.noKeys(t, "again") })
}
