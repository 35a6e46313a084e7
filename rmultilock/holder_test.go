package rmultilock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rmultilock"
)

// F26
func TestHolderOfSilentMastersEndsWithOneCallTimeout(t *testing.T) {
	const limit = time.Second
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := newServers(t, b, 3).peers(t, redlatch.WithCallTimeout(limit))
				l := both(p[0].Client, p.locks("a")...)[kind]
				locktest.Free(t, l)
				synctest.Wait()
				faults["silent"](p, true)
				within(t, limit, redlatch.ErrUnavailable, func() error { return second(rmultilock.Holder(t.Context(), l)) })
				ctx, cancel := context.WithTimeout(t.Context(), limit/2)
				defer cancel()
				within(t, limit/2+10*time.Millisecond, context.DeadlineExceeded, func() error { return second(rmultilock.Holder(ctx, l)) })
				faults["silent"](p, false)
			})
		})
	}
}

// F26
func TestSilentMasterHidesNoHolder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 5)
		mine, other := s.peers(t), s.peers(t)
		locktest.Free(t, mine.red("a"))
		synctest.Wait()
		h := locktest.Acquire(t, t.Context(), other.red("a"))
		synctest.Wait()
		faults["silent"](mine[:2], true)
		start := time.Now()
		who, err := rmultilock.Holder(t.Context(), mine.red("a"))
		require.NoError(t, err)
		assert.Equal(t, other[2].ID(), who.Client, "of the first one that answers")
		assert.LessOrEqual(t, time.Since(start), 510*time.Millisecond)

		_, err = mine.red("a").TryLock(t.Context(), rlock.WithHolder())
		var taken *rlock.TakenError
		require.ErrorAs(t, err, &taken)
		assert.Equal(t, other[2].ID(), taken.Info.Client)
		locktest.Unlock(t, h)
		synctest.Wait() // until all have released it

		who, err = rmultilock.Holder(t.Context(), mine.red("a"))
		require.ErrorIs(t, err, redlatch.ErrUnavailable, "one of the silent ones may be held")
		assert.Equal(t, rlock.Info{Name: "a"}, who)
		faults["silent"](mine, false)
	})
}

func TestHolderIsThatOfTheFirstLockThatIsHeld(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		l := c.GetMultiLock(c.GetLock("a"), slow{Locker: c.GetLock("b"), by: 50 * time.Millisecond}, c.GetFairLock("c"))
		last := locktest.Acquire(t, t.Context(), other.GetFairLock("c"))
		who, err := rmultilock.Holder(t.Context(), l)
		require.NoError(t, err)
		assert.Equal(t, last.Owner(), who.Owner)
		first := locktest.Acquire(t, t.Context(), other.GetLock("b"))
		who, err = rmultilock.Holder(t.Context(), l)
		require.NoError(t, err)
		assert.Equal(t, first.Owner(), who.Owner, "however long its answer takes")
		assert.Equal(t, "b", who.Name)
		locktest.Unlock(t, first)
		locktest.Unlock(t, last)
	})
}

// F26
func TestHolderOfStoppedServersEndsWithOneCallTimeoutOnServers(t *testing.T) {
	const limit = 400 * time.Millisecond
	var all []rlock.Locker
	var first *redlatch.Client
	var servers []*redistest.Server
	for range 3 {
		s := redistest.Start(t)
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, redlatch.WithCallTimeout(limit))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		all, servers = append(all, c.GetLock("a")), append(servers, s)
		if first == nil {
			first = c
		}
	}
	lag := faulttest.MeasureLag(t, "")
	red := first.GetRedLock(all...)
	h := locktest.Acquire(t, t.Context(), red)
	servers[0].Pause()
	who, err := rmultilock.Holder(t.Context(), red)
	require.NoError(t, err)
	assert.Equal(t, "a", who.Name)
	servers[1].Pause()
	servers[2].Pause()
	start := time.Now()
	require.ErrorIs(t, second(rmultilock.Holder(t.Context(), red)), redlatch.ErrUnavailable)
	assert.Less(t, time.Since(start), limit+ctxBound+lag.Late())
	for _, s := range servers {
		s.Resume()
	}
	locktest.Unlock(t, h)
}
