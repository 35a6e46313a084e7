package rlock_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The processes share nothing but the server. A hand-off costs at most a command for each process and 2 more, and with four times
// as many waiters a quarter and half a command more than with the few.
//
// F21
func TestCommandsGrowWithProcessesAndNotWithWaiters(t *testing.T) {
	const waiters = 8
	most := faulttest.Rounds(t, 5, 20)
	for _, processes := range []int{1, 2, most} {
		few := commandsPerHandOffOfProcesses(t, processes, waiters)
		many := commandsPerHandOffOfProcesses(t, processes, 4*waiters)
		t.Logf("%2d processes of %d waiters: %.2f commands per hand-off; of %d: %.2f", processes, waiters, few, 4*waiters, many)
		assert.LessOrEqual(t, few, float64(processes)+2, "%d processes", processes)
		assert.LessOrEqual(t, many, 1.25*few+0.5, "%d processes, four times as many waiters", processes)
	}
}

// commandsPerHandOffOfProcesses has some goroutines of some processes take one lock again and again, each time through Redis.
func commandsPerHandOffOfProcesses(t *testing.T, processes, waiters int) float64 {
	t.Helper()
	server := serve(t)
	rdb, proxy := server.Client(t), faulttest.NewProxy(t, server.Addr())
	sections := faulttest.Rounds(t, 1000, 2000)
	children := make([]*faulttest.Child, processes)
	for i := range children {
		children[i] = faulttest.StartChild(t, "crowd", proxy.Addr(), server.Addr(), strconv.Itoa(waiters), strconv.Itoa(sections))
	}
	for _, child := range children {
		child.WaitFor("ready")
	}
	before := proxy.Total()
	for _, child := range children {
		child.Send("go")
	}
	redistest.Eventually(t, crowdLimit, "sections", func() error {
		if taken, err := rdb.Get(t.Context(), crowdTaken).Int(); err != nil || taken < sections {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	for _, child := range children {
		assert.Equal(t, "alone true", child.WaitFor("alone"))
		require.NoError(t, child.Wait())
	}
	taken, err := rdb.Get(t.Context(), crowdTaken).Int()
	require.NoError(t, err)
	require.GreaterOrEqual(t, taken, sections)
	require.NoError(t, rdb.Del(t.Context(), crowdTaken, crowdInside).Err())
	return float64(proxy.Total()-before) / float64(taken)
}

// crowdLimit bounds the long run on a slow machine.
const crowdLimit = 2 * time.Minute

// Keys of what the processes count.
const (
	crowdTaken  = "faulttest:taken"
	crowdInside = "faulttest:inside"
)

// crowdProcess is a process whose goroutines take one lock until all processes have taken it often enough. What they count goes past the
// proxy. Args: the proxy's address, the server's, how many goroutines, how many sections.
func crowdProcess(args []string) {
	ctx := context.Background()
	waiters, err := strconv.Atoi(args[2])
	exitOn(err)
	sections, err := strconv.ParseInt(args[3], 10, 64)
	exitOn(err)
	counts := redis.NewClient(&redis.Options{Addr: args[1]})
	rdb := redis.NewClient(&redis.Options{Addr: args[0], MinIdleConns: 1})
	client, err := redlatch.New(rdb, redlatch.WithHandoffBudget(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	exitOn(err)
	hold, err := client.GetLock("warm " + strconv.Itoa(os.Getpid())).Lock(ctx) // has the connection ready
	exitOn(err)
	exitOn(hold.Unlock(ctx))
	faulttest.Emit("ready")
	bufio.NewScanner(os.Stdin).Scan()

	lock := client.GetLock("f21")
	var workers sync.WaitGroup
	var mu sync.Mutex
	alone := true // guarded by mu
	for range waiters {
		workers.Go(func() {
			for done := false; !done; {
				hold, err := lock.Lock(ctx)
				exitOn(err)
				inside, err := counts.Incr(ctx, crowdInside).Result()
				exitOn(err)
				taken, err := counts.Incr(ctx, crowdTaken).Result()
				exitOn(err)
				exitOn(counts.Decr(ctx, crowdInside).Err())
				exitOn(hold.Unlock(ctx))
				mu.Lock()
				alone = alone && inside == 1
				mu.Unlock()
				done = taken >= sections
			}
		})
	}
	workers.Wait()
	faulttest.Emit("alone %v", alone)
	exitOn(client.Close())
}
