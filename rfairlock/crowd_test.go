package rfairlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

const (
	crowdSize = 16 // waiters in one process
	served    = "served"
)

// crowdClient returns a client over rdb, in whose queues a dead waiter is passed over after a second.
func crowdClient(t *testing.T, rdb *redis.Client) *redlatch.Client {
	t.Helper()
	client, err := redlatch.New(rdb, redlatch.WithFairWaitTimeout(childTimeout))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// awaitQueue waits until so many stand in the queue.
func awaitQueue(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "they queue", func() error {
		if queued := len(waiters(t, rdb)); queued != n {
			return fmt.Errorf("%d of %d wait", queued, n)
		}
		return nil
	})
}

// crowd has many goroutines of one process take a lock once each, and write down in which order they had it. Args: the
// server's address, the name.
func crowd(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	client, err := redlatch.New(rdb) // its waiters are good for 5 s: a busy machine passes nobody over
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	for range crowdSize {
		wg.Go(func() {
			hold, err := client.GetFairLock(args[1]).Lock(context.Background())
			if err != nil {
				panic(err)
			}
			if err := rdb.RPush(hold.Context(), served, hold.Owner()).Err(); err != nil {
				panic(err)
			}
			if err := hold.Unlock(context.Background()); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
}

// F11
func TestProcessesAreServedInTheOrderOfTheQueue(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	for range faulttest.Rounds(t, 1, 157) { // 10,000 grants in the long run
		require.NoError(t, rdb.Del(t.Context(), served).Err())
		h := locktest.Acquire(t, t.Context(), client.GetFairLock(key))
		var running [4]*faulttest.Child
		for i := range running {
			running[i] = faulttest.StartChild(t, "rfairlock-crowd", server.Addr(), key)
		}
		awaitQueue(t, rdb, len(running)*crowdSize)
		queued := waiters(t, rdb)
		locktest.Unlock(t, h)
		for _, c := range running {
			require.NoError(t, c.Wait())
		}
		got, err := rdb.LRange(t.Context(), served, 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, queued, got)
	}
}

// F21
func TestThousandLocalWaitersEnterOnceEachForFewCommands(t *testing.T) {
	// To queue, to have one's turn, to release: three. On a busy machine unsubscriptions come one by one, and not in
	// groups; and what goes by time, such as upkeep, is more there.
	assert.LessOrEqual(t, locktest.Crowd(t, locktest.Env{New: fairLock}, 1000), 4.25)
}
