package inspect_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rlock"
)

func TestNumberThatMayBeASemaphoreOrALatchHasAState(t *testing.T) {
	c, err := embedded.Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	_, err = c.GetSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	var seen []inspect.Summary
	for o, err := range c.Objects(t.Context(), "", redlatch.WithKinds("semaphore")) {
		require.NoError(t, err)
		seen = append(seen, inspect.SummaryOf(o))
	}
	assert.Equal(t, []inspect.Summary{{Kind: "semaphore", Name: "uploads", State: "3 available, 0 clients wait"}}, seen)
}

func TestListsNameTheFirstOfThoseWhoHold(t *testing.T) {
	c, err := embedded.Open(redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	uploads := c.GetPermitSemaphore("uploads")
	require.NoError(t, uploads.SetPermits(t.Context(), 3))
	stateIs := func(name, want string, held ...string) {
		t.Helper()
		var s inspect.Summary
		for o, err := range c.Objects(t.Context(), name) {
			require.NoError(t, err)
			s = inspect.SummaryOf(o)
		}
		require.ElementsMatch(t, held, s.Owners)
		assert.Equal(t, fmt.Sprintf(want, s.Owners[0]), s.State)
	}
	reader, err := c.GetReadWriteLock("page").RLock(t.Context())
	require.NoError(t, err)
	stateIs("page", "read by %s, 0 writers wait", reader.Owner())
	other, err := c.GetReadWriteLock("page").RLock(t.Context())
	require.NoError(t, err)
	stateIs("page", "read by %s and 1 more, 0 writers wait", reader.Owner(), other.Owner())
	permit, err := uploads.Acquire(t.Context())
	require.NoError(t, err)
	stateIs("uploads", "2 of 3 available, held by %s, 0 clients wait", permit.ID())
	another, err := uploads.Acquire(t.Context())
	require.NoError(t, err)
	stateIs("uploads", "1 of 3 available, held by %s and 1 more, 0 clients wait", permit.ID(), another.ID())
}

func TestWaitersOfALockThatIsFairAndPlainAreCountedTogether(t *testing.T) {
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	open := func() *redlatch.Client {
		c, err := redlatch.Open(t.Context(), server.URL())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	holder, waiter := open(), open() // those of the holder's client would not be counted
	hold, err := holder.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	ctx, giveUp := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer giveUp()
	for n, l := range []rlock.Locker{waiter.GetFairLock("orders"), waiter.GetLock("orders")} {
		calls.Go(func() { _, _ = l.Lock(ctx) })
		require.Eventually(t, func() bool {
			l, err := inspect.LockOf(t.Context(), holder, "orders")
			return err == nil && l.Waiting == n+1
		}, 10*time.Second, time.Millisecond)
	}
	giveUp()
	calls.Wait()
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestForceFreesOnlyThoseThatWereSeen(t *testing.T) {
	c, err := embedded.Open(redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	for name, l := range map[string]rlock.Locker{
		"plain": c.GetLock("plain"), "fair": c.GetFairLock("fair"), "written": c.GetReadWriteLock("written"), "read": c.GetReadWriteLock("read").RLocker(),
	} {
		first, err := l.Lock(t.Context())
		require.NoError(t, err, name)
		seen, err := inspect.LockOf(t.Context(), c, name)
		require.NoError(t, err, name)
		require.NoError(t, first.Unlock(t.Context()), name)
		freed, err := seen.Force(t.Context(), c)
		require.NoError(t, err, name)
		assert.False(t, freed, name)

		second, err := l.Lock(t.Context())
		require.NoError(t, err, name)
		freed, err = seen.Force(t.Context(), c)
		require.ErrorIs(t, err, inspect.ErrOthers, name)
		require.ErrorContains(t, err, second.Owner(), name)
		assert.False(t, freed, name)
		require.NoError(t, second.Context().Err(), name)

		seen, err = inspect.LockOf(t.Context(), c, name)
		require.NoError(t, err, name)
		freed, err = seen.Force(t.Context(), c)
		require.NoError(t, err, name)
		assert.True(t, freed, name)
		seen, err = inspect.LockOf(t.Context(), c, name)
		require.NoError(t, err, name)
		assert.False(t, seen.Locked, name)
	}
}

func TestBarriersOfOneNameAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open()
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		b, err := inspect.BarriersOf(t.Context(), c, "start")
		require.NoError(t, err)
		assert.Equal(t, inspect.Barriers{Name: "start", InUse: []rbarrier.Info{}}, b)
		ended := make(chan error, 2)
		double := c.GetDoubleBarrier("start", 2)
		go func() { ended <- c.GetBarrier("start", 3).Await(t.Context()) }()
		go func() { ended <- double.Enter(t.Context()) }()
		synctest.Wait()
		require.NoError(t, c.GetDoubleBarrier("start", 2).Enter(t.Context()))
		require.NoError(t, <-ended)
		go func() { ended <- double.Leave(t.Context()) }()
		synctest.Wait()
		b, err = inspect.BarriersOf(t.Context(), c, "start")
		require.NoError(t, err)
		require.Len(t, b.InUse, 2)
		assert.Equal(t, []int{3, 1}, []int{b.InUse[0].Participants, b.InUse[0].Arrived.Count})
		i := b.InUse[1]
		assert.Equal(t, []int{2, 0, 1, 1}, []int{i.Participants, i.Arrived.Count, i.Inside.Count, i.Leaving.Count})
		var states []string
		for o, err := range c.Objects(t.Context(), "") {
			require.NoError(t, err)
			s := inspect.SummaryOf(o)
			states = append(states, s.State)
			assert.Equal(t, 1, s.Waiting)
		}
		assert.ElementsMatch(t, []string{"1 of 3 arrived", "double, 0 of 2 arrived, 1 inside, 1 leaving"}, states)
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-ended, redlatch.ErrClosed)
		require.ErrorIs(t, <-ended, redlatch.ErrClosed)
		_, err = inspect.BarriersOf(t.Context(), c, "start")
		require.ErrorIs(t, err, redlatch.ErrClosed)
	})
}

func TestKeyOfAnotherProgramHidesNoBarrierInUse(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t).Client
		require.NoError(t, b.Redis.Set(t.Context(), "redlatch_barrier:{start}", "word", 0).Err())
		_, err := inspect.BarriersOf(t.Context(), c, "start")
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		d := c.GetDoubleBarrier("start", 1)
		require.NoError(t, d.Enter(t.Context()))
		require.NoError(t, b.Redis.Del(t.Context(), "redlatch_double:{start}").Err())
		found, err := inspect.BarriersOf(t.Context(), c, "start")
		require.NoError(t, err)
		require.Len(t, found.InUse, 1, "also without its number")
		assert.Equal(t, 1, found.InUse[0].Inside.Count)
		require.NoError(t, d.Leave(t.Context()))
	})
}

// A client says at first what it has held longest, of 1,000 things.
func TestHoldThatIsNotAmongTheFirstIsFound(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	open := func() *redlatch.Client {
		c, err := redlatch.Open(t.Context(), server.URL(), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)),
			redlatch.WithWatchdogTimeout(time.Hour)) // a thousand renewals take miniredis seconds under the race detector
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	holder, viewer := open(), open()
	for i := range 1_050 {
		_, err := holder.GetLock(fmt.Sprint("many", i)).Lock(t.Context())
		require.NoError(t, err)
	}
	_, err = holder.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		l, err := inspect.LockOf(t.Context(), viewer, "orders")
		require.NoError(t, err)
		l.Ask(t.Context(), viewer)
		return !l.Holders[0].Since.IsZero()
	}, 10*time.Second, 50*time.Millisecond)
}

func TestForceFreesACrowdOfReadersThatCome(t *testing.T) {
	c, err := embedded.Open(redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	read := func(n int) {
		for range n {
			_, err := c.GetReadWriteLock("prices").RLock(t.Context())
			require.NoError(t, err)
		}
	}
	read(150)
	seen, err := inspect.LockOf(t.Context(), c, "prices")
	require.NoError(t, err)
	assert.Len(t, seen.Holders, 100)
	assert.Equal(t, 50, seen.MoreHolders)
	read(50)
	freed, err := seen.Force(t.Context(), c)
	require.NoError(t, err)
	assert.True(t, freed)
}
