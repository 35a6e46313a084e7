package rrwlock_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const killedLease = 600 * time.Millisecond

// readUntilKilled is for a child process: it reads, and says who it is. Args: the server's address, the lock's name.
func readUntilKilled(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithWatchdogTimeout(killedLease))
	if err == nil {
		var h *rlock.Hold
		if h, err = c.GetReadWriteLock(args[1]).RLock(context.Background()); err == nil {
			faulttest.Emit("%s", h.Owner())
			<-h.Context().Done()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// F12
func TestKilledReaderHoldsNobodyUp(t *testing.T) {
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	rdb, lag := server.Client(t), faulttest.MeasureLag(t, server.Addr())
	short := redlatch.WithWatchdogTimeout(killedLease)
	for round := range faulttest.Rounds(t, 1, 8) {
		name := fmt.Sprint("n", round)
		l := clientAt(t, server.Addr(), short).GetReadWriteLock(name)
		alive := locktest.Acquire(t, t.Context(), l.RLocker())
		child := faulttest.StartChild(t, "rrwlock-reader", server.Addr(), name)
		dead := child.Next()
		level := func(owner string) string { return "{" + name + "}:" + owner + ":rwlock_timeout:1" }
		time.Sleep(2 * killedLease) // both are renewed
		require.EqualValues(t, 2, rdb.Exists(t.Context(), level(dead), level(alive.Owner())).Val())

		child.Kill()
		killed := time.Now()
		w := clientAt(t, server.Addr(), short).GetReadWriteLock(name)
		writing := locktest.Begin(func() (*rlock.Hold, error) { return w.Lock(t.Context()) })
		redistest.Eventually(t, killedLease+100*time.Millisecond+lag.Late(), "the lease of the dead one ends", func() error {
			if n, err := rdb.Exists(t.Context(), level(dead)).Result(); err != nil || n > 0 {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
		time.Sleep(time.Until(killed.Add(2 * killedLease)))
		require.EqualValues(t, 1, rdb.Exists(t.Context(), level(alive.Owner())).Val())
		locktest.Live(t, alive.Context())
		select {
		case <-writing:
			require.Fail(t, "a writer is in with a reader")
		default:
		}

		locktest.Unlock(t, alive)
		left := time.Now()
		h := locktest.Next(t, writing)
		assert.Less(t, time.Since(left), 200*time.Millisecond+lag.Late(), "it is woken")
		locktest.Unlock(t, h)
		require.Zero(t, rdb.Exists(t.Context(), name).Val())
	}
}
