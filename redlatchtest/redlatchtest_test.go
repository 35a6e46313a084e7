package redlatchtest_test

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
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

const lease = 30 * time.Second

// bubble runs a test in a bubble of fake time, with a server in it.
func bubble(t *testing.T, test func(t *testing.T, s *redlatchtest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, redlatchtest.Start(t)) })
}

func lock(t *testing.T, l rlock.Locker) *rlock.Hold {
	t.Helper()
	hold, err := l.Lock(t.Context())
	require.NoError(t, err)
	return hold
}

func TestLostHoldIsToldAndFree(t *testing.T) {
	for kind, get := range map[string]func(c *redlatch.Client) rlock.Locker{
		"plain":  func(c *redlatch.Client) rlock.Locker { return c.GetLock("orders") },
		"fenced": func(c *redlatch.Client) rlock.Locker { return c.GetFencedLock("orders") },
		"fair":   func(c *redlatch.Client) rlock.Locker { return c.GetFairLock("orders") },
		"writer": func(c *redlatch.Client) rlock.Locker { return c.GetReadWriteLock("orders") },
		"reader": func(c *redlatch.Client) rlock.Locker { return c.GetReadWriteLock("orders").RLocker() },
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redlatchtest.Server) {
				mine, theirs := s.Client(), s.Client()
				hold := lock(t, get(mine))
				s.Lose(hold)
				require.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost)
				require.NoError(t, lock(t, theirs.GetReadWriteLock("orders")).Unlock(t.Context()))
				require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld)
			})
		})
	}
}

func TestLostReaderLeavesTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		c := s.Client()
		one, other := lock(t, c.GetReadWriteLock("orders").RLocker()), lock(t, c.GetReadWriteLock("orders").RLocker())
		s.Lose(one)
		s.Advance(2 * lease)
		require.NoError(t, other.Context().Err())
		require.NoError(t, other.Unlock(t.Context()))
	})
}

func TestLostLeaderIsToldAndReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		mine, theirs := s.Client(), s.Client()
		lead, err := mine.GetElection("leader").Campaign(t.Context())
		require.NoError(t, err)
		s.Lose(lead)
		require.ErrorIs(t, context.Cause(lead.Context()), rlock.ErrLost)
		next, err := theirs.GetElection("leader").Campaign(t.Context())
		require.NoError(t, err)
		require.Greater(t, next.Term(), lead.Term())
		require.NoError(t, next.Resign(t.Context()))
	})
}

func TestLostPermitIsAvailableAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		c := s.Client()
		pool := c.GetPermitSemaphore("pool")
		require.NoError(t, pool.SetPermits(t.Context(), 2))
		one, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		other, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		s.Lose(one)
		require.ErrorIs(t, context.Cause(one.Context()), rlock.ErrLost)
		n, err := pool.Available(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, other.Release(t.Context()))
	})
}

func TestPartitionedHolderLosesAndHeals(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		mine, theirs := s.Client(), s.Client()
		hold := lock(t, mine.GetLock("orders"))
		s.Partition(mine)
		next := lock(t, theirs.GetLock("orders"))
		require.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost, "told before")
		s.Heal(mine)
		_, err := mine.GetLock("orders").TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, lock(t, mine.GetLock("orders")).Unlock(t.Context()))
	})
}

func TestKilledClientReleasesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		mine, theirs := s.Client(), s.Client()
		lock(t, mine.GetLock("orders"))
		killed := time.Now()
		s.Kill(mine)
		require.NoError(t, lock(t, theirs.GetLock("orders")).Unlock(t.Context()))
		assert.InDelta(t, lease.Seconds(), time.Since(killed).Seconds(), 1)
		_, err := mine.GetLock("orders").TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
	})
}

func TestDroppedReplyIsMadeGood(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		c := s.Client()
		s.DropReplies(c, 1)
		hold := lock(t, c.GetLock("orders"))
		s.DropReplies(c, 1)
		require.NoError(t, hold.Unlock(t.Context()))
		locked, err := c.GetLock("orders").IsLocked(t.Context())
		require.NoError(t, err)
		require.False(t, locked)
	})
}

func TestRestartKeepsOrLosesEverything(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		c := s.Client()
		jobs := redlatch.GetDelayedQueue[string](c, "jobs")
		_, err := jobs.Offer(t.Context(), "work", time.Hour, rdelayedqueue.WithID("one"))
		require.NoError(t, err)
		hold := lock(t, c.GetLock("orders"))
		s.Restart(redlatchtest.Kept)
		s.Advance(2 * lease)
		require.NoError(t, hold.Context().Err())
		stats, err := jobs.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, stats.Delayed)

		s.Restart(redlatchtest.Empty)
		<-hold.Context().Done()
		require.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost)
		stats, err = jobs.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Delayed)
	})
}

// Without a bubble, where time takes its time.
func TestLoseOutsideOfABubble(t *testing.T) {
	s := redlatchtest.Start(t)
	c := s.Client(redlatch.WithWatchdogTimeout(300 * time.Millisecond))
	hold := lock(t, c.GetLock("orders"))
	s.Lose(hold)
	require.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost)
}

// fatal is a test whose end can be seen.
type fatal struct {
	testing.TB
	said chan string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatal(args ...any) {
	f.said <- fmt.Sprint(args...)
	runtime.Goexit() // as a test's own does
}

func (f *fatal) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func TestMisuseEndsTheTest(t *testing.T) {
	for want, misuse := range map[string]func(s, other *redlatchtest.Server, c *redlatch.Client, h *rlock.Hold){
		"not one of this server's": func(_, other *redlatchtest.Server, c *redlatch.Client, _ *rlock.Hold) { other.Kill(c) },
		"has nothing of this":      func(_, other *redlatchtest.Server, _ *redlatch.Client, h *rlock.Hold) { other.Lose(h) },
		"the hold has ended":       func(s, _ *redlatchtest.Server, _ *redlatch.Client, _ *rlock.Hold) { s.Lose((*rlock.Hold)(nil)) },
	} {
		t.Run(want, func(t *testing.T) {
			f := &fatal{TB: t, said: make(chan string, 1)}
			s, other := redlatchtest.Start(f), redlatchtest.Start(f)
			c := s.Client()
			h := lock(t, c.GetLock("orders"))
			go misuse(s, other, c, h)
			assert.Contains(t, <-f.said, want)
		})
	}
}
