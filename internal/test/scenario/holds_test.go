package scenario_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

func TestHoldsAndWaitsTellWhatAClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open(redlatch.WithWatchdogTimeout(30*time.Second), redlatch.WithCallSites())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		assert.Empty(t, c.Holds())
		assert.Empty(t, c.Waits())

		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 20)
		begun := map[string]time.Time{}
		owners := map[string]string{}
		kinds := map[string]string{"plain": "lock", "fenced": "lock", "fair": "fair_lock", "writer": "rw_lock", "reader": "rw_lock"}
		for kind, get := range lockKinds {
			begun[kind] = time.Now()
			hold, err := get(c, kind).Lock(t.Context())
			require.NoError(t, err)
			owners[kind] = hold.Owner()
			go func() { _, err := rival(kind, c, kind).Lock(ctx); ended <- err }()
			time.Sleep(time.Second)
		}
		nested, err := c.GetLock("nested").Lock(t.Context(), rlock.WithFixedLease(time.Hour))
		require.NoError(t, err)
		_, err = c.GetLock("nested").Lock(nested.Context())
		require.NoError(t, err)
		permits := c.GetPermitSemaphore("permit")
		require.NoError(t, permits.SetPermits(t.Context(), 1))
		permit, err := permits.Acquire(t.Context())
		require.NoError(t, err)
		go func() { _, err := c.GetPermitSemaphore("permit").Acquire(ctx); ended <- err }()
		go func() { ended <- c.GetSemaphore("semaphore").Acquire(ctx, 1) }()
		_, err = c.GetCountDownLatch("latch").TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		go func() { ended <- c.GetCountDownLatch("latch").Await(ctx) }()
		queue := redlatch.GetDelayedQueue[string](c, "queue", rdelayedqueue.WithVisibility(time.Hour))
		_, err = queue.Offer(t.Context(), "work", 0, rdelayedqueue.WithID("first"))
		require.NoError(t, err)
		message, err := queue.Take(t.Context())
		require.NoError(t, err)
		go func() { _, err := redlatch.GetDelayedQueue[string](c, "queue").Take(ctx); ended <- err }()

		time.Sleep(65 * time.Second)
		synctest.Wait()
		holds := map[string]redlatch.HoldInfo{}
		last := time.Time{}
		for _, h := range c.Holds() {
			holds[h.Name] = h
			assert.False(t, h.Since.Before(last), "in order")
			assert.Contains(t, h.Site, "holds_test.go:", h.Name)
			last = h.Since
		}
		require.Len(t, holds, 8)
		for kind, title := range kinds {
			h := holds[kind]
			assert.Equal(t, title, h.Kind)
			assert.Equal(t, owners[kind], h.Owner)
			assert.Equal(t, 1, h.Levels)
			assert.Equal(t, map[string]string{"writer": "write", "reader": "read"}[kind], h.Mode)
			assert.WithinDuration(t, begun[kind], h.Since, 10*time.Millisecond)
			assert.InDelta(t, 25, h.Left.Seconds(), 5.1)
			if kind == "fair" || kind == "reader" {
				assert.InDelta(t, 6, h.Renewed, 1.1, "a third of 30 s, for 65 to 70 s")
			} else {
				assert.InDelta(t, 65, h.Renewed, 15, "a client verifies what its own calls wait for")
			}
		}
		assert.Equal(t, 2, holds["nested"].Levels)
		assert.InDelta(t, 3535, holds["nested"].Left.Seconds(), 40)
		assert.Equal(t, permit.ID(), holds["permit"].Owner)
		assert.Equal(t, "permits", holds["permit"].Kind)
		assert.Equal(t, "first", holds["queue"].Owner)
		assert.Equal(t, "queue", holds["queue"].Kind)
		assert.InDelta(t, 3535, holds["queue"].Left.Seconds(), 40)

		waits := map[string]redlatch.WaitInfo{}
		for _, w := range c.Waits() {
			waits[w.Name] = w
		}
		require.Len(t, waits, 9)
		for kind, title := range kinds {
			assert.Equal(t, title, waits[kind].Kind)
			assert.WithinDuration(t, begun[kind], waits[kind].Since, 10*time.Millisecond)
		}
		for name, kind := range map[string]string{"permit": "permits", "semaphore": "semaphore", "latch": "latch", "queue": "queue"} {
			assert.Equal(t, kind, waits[name].Kind)
		}
		giveUp()
		for range 9 {
			assert.ErrorIs(t, <-ended, context.Canceled)
		}
		assert.Empty(t, c.Waits())
		require.NoError(t, message.Ack(t.Context()))
		require.NoError(t, permit.Release(t.Context()))
		require.NoError(t, nested.Unlock(t.Context()))
	})
}

// A leader holds for days, by design, and a candidate waits as long: neither is a fair lock that somebody has forgotten.
func TestLeaderAndCandidateAreReportedAsOfAnElection(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c, rival := b.Peer(t, log.option()), b.Peer(t)
		l, err := c.GetElection("workers").Campaign(t.Context())
		require.NoError(t, err)
		ctx, withdraw := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := rival.GetElection("workers").Campaign(ctx); ended <- err }()
		synctest.Wait()
		holds, waits := c.Holds(), rival.Waits()
		require.Len(t, holds, 1)
		require.Len(t, waits, 1)
		assert.Equal(t, []string{"election", "workers", l.ID()}, []string{holds[0].Kind, holds[0].Name, holds[0].Owner})
		assert.Equal(t, []string{"election", "workers"}, []string{waits[0].Kind, waits[0].Name})
		_, err = c.GetFairLock("workers").TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		withdraw()
		require.ErrorIs(t, <-ended, context.Canceled)

		b.Mini.FlushAll()
		<-l.Context().Done()
		synctest.Wait()
		require.ErrorContains(t, context.Cause(l.Context()), `relection: leadership "workers": leadership lost`)
		lines := log.take()
		require.Len(t, lines, 1)
		assert.Equal(t, []any{"redlatch: a leadership was lost", "election"}, []any{lines[0]["msg"], lines[0]["kind"]})
	})
}

// Many leases are renewed together, by groups that last.
func TestEveryLockOfACrowdCountsItsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open(redlatch.WithWatchdogTimeout(30 * time.Second))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		var all []*rlock.Hold
		for i := range 250 {
			hold, err := c.GetLock(fmt.Sprint("lock", i)).Lock(t.Context())
			require.NoError(t, err)
			all = append(all, hold)
		}
		time.Sleep(65 * time.Second)
		for _, hold := range all[:40] { // they leave their groups
			require.NoError(t, hold.Unlock(t.Context()))
		}
		_, err = c.GetLock("lock100").Lock(all[100].Context())
		require.NoError(t, err)
		time.Sleep(60 * time.Second)
		holds := c.Holds()
		require.Len(t, holds, 210)
		for _, h := range holds {
			assert.InDelta(t, 12, h.Renewed, 1.1, h.Name)
		}
		for _, hold := range all[40:] {
			require.NoError(t, hold.Unlock(t.Context()))
		}
	})
}

// A consumer is often started by a go statement, so that no function of the program has called the library.
func TestCallSiteOfAGoStatementIsItsOwnLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := embedded.Open(redlatch.WithCallSites())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		hold, err := c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		ctx, giveUp := context.WithCancel(t.Context())
		_, _, line, _ := runtime.Caller(0)
		go c.GetLock("orders").Lock(ctx) //nolint:errcheck // it is given up
		synctest.Wait()
		require.Len(t, c.Waits(), 1)
		assert.Regexp(t, fmt.Sprintf(`^[^/]+/holds_test\.go:%d$`, line+1), c.Waits()[0].Site)
		giveUp()
		require.NoError(t, hold.Unlock(t.Context()))
	})
}
