package redlatch_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// crowdKind is an object for which processes wait.
type crowdKind struct {
	most    int64 // who may be inside at a time
	base    float64
	acquire func(ctx context.Context, c *redlatch.Client) (release func(context.Context) error, err error)
}

// crowdKinds are the kinds of which a hand-off costs so many commands, and one for each process.
func crowdKinds() map[string]crowdKind {
	kinds := map[string]crowdKind{
		"semaphore": {2, 2, func(ctx context.Context, c *redlatch.Client) (func(context.Context) error, error) {
			s := c.GetSemaphore(crowdName)
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, s.Acquire(ctx, 1)
		}},
		"permits": {2, 2, func(ctx context.Context, c *redlatch.Client) (func(context.Context) error, error) {
			p, err := c.GetPermitSemaphore(crowdName).Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}},
	}
	for kind, base := range map[string]float64{"plain": 2, "fair": 4, "writer": 3} {
		kinds[kind] = crowdKind{1, base, func(ctx context.Context, c *redlatch.Client) (func(context.Context) error, error) {
			hold, err := lockKinds[kind](c, crowdName).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return hold.Unlock, nil
		}}
	}
	return kinds
}

// The processes share nothing but the server. A hand-off costs at most a command for each process and a few more, and with four times
// as many waiters a quarter and half a command more than with the few.
//
// F21
func TestCommandsGrowWithProcessesAndNotWithWaiters(t *testing.T) {
	t.Parallel()
	const waiters = 8
	processes := []int{2, faulttest.Rounds(t, 4, 20)}
	for kind, k := range crowdKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			few := 0.0
			for _, n := range processes {
				few = commandsPerHandOff(t, kind, n, waiters)
				t.Logf("%d processes of %d waiters: %.2f commands per hand-off", n, waiters, few)
				assert.LessOrEqual(t, few, float64(n)+k.base, "%d processes", n)
			}
			many := commandsPerHandOff(t, kind, processes[1], 4*waiters)
			t.Logf("%d processes of %d waiters: %.2f commands per hand-off", processes[1], 4*waiters, many)
			assert.LessOrEqual(t, many, 1.25*few+0.5, "four times as many waiters")
		})
	}
}

// commandsPerHandOff has some goroutines of some processes acquire one object again and again, each time through Redis.
func commandsPerHandOff(t *testing.T, kind string, processes, waiters int) float64 {
	t.Helper()
	server := redistest.Start(t)
	rdb, proxy := server.Client(t), faulttest.NewProxy(t, server.Addr())
	client, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	furnishCrowd(t, client, kind)
	sections := faulttest.Rounds(t, 400, 1000)
	children := make([]*faulttest.Child, processes)
	for i := range children {
		children[i] = faulttest.StartChild(t, "crowd", kind, proxy.Addr(), server.Addr(), strconv.Itoa(waiters), strconv.Itoa(sections))
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
			return fmt.Errorf("%d of %d: %w", taken, sections, err)
		}
		return nil
	})
	for _, child := range children {
		assert.Equal(t, "apart true", child.WaitFor("apart"))
		require.NoError(t, child.Wait())
	}
	taken, err := rdb.Get(t.Context(), crowdTaken).Int()
	require.NoError(t, err)
	require.GreaterOrEqual(t, taken, sections)
	return float64(proxy.Total()-before) / float64(taken)
}

// crowdLimit bounds the long run on a slow machine.
const crowdLimit = 2 * time.Minute

// The name of the object, and keys of what the processes count.
const (
	crowdName   = "f21"
	crowdTaken  = "faulttest:taken"
	crowdInside = "faulttest:inside"
)

// furnishCrowd has what is not there by itself.
func furnishCrowd(t *testing.T, c *redlatch.Client, kind string) {
	t.Helper()
	set := c.GetSemaphore(crowdName).TrySetPermits
	if kind == "permits" {
		set = c.GetPermitSemaphore(crowdName).TrySetPermits
	}
	if n := crowdKinds()[kind].most; n > 1 {
		ok, err := set(t.Context(), int(n))
		require.NoError(t, err)
		require.True(t, ok)
	}
}

// crowdProcess is a process whose goroutines acquire one object until all processes have acquired it often enough. What they count
// goes past the proxy. Args: the kind, the proxy's address, the server's, how many goroutines, how many sections.
func crowdProcess(args []string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx, kind := context.Background(), crowdKinds()[args[0]]
	waiters, err := strconv.Atoi(args[3])
	must(err)
	sections, err := strconv.ParseInt(args[4], 10, 64)
	must(err)
	counts := redis.NewClient(&redis.Options{Addr: args[2]})
	rdb := redis.NewClient(&redis.Options{Addr: args[1], MinIdleConns: 1})
	client, err := redlatch.New(rdb, redlatch.WithHandoffBudget(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	must(err)
	hold, err := client.GetLock("warm " + strconv.Itoa(os.Getpid())).Lock(ctx) // has the connection ready
	must(err)
	must(hold.Unlock(ctx))
	faulttest.Emit("ready")
	bufio.NewScanner(os.Stdin).Scan()

	var workers sync.WaitGroup
	var crowded atomic.Bool // more were inside than may be
	for range waiters {
		workers.Go(func() {
			for done := false; !done; {
				release, err := kind.acquire(ctx, client)
				must(err)
				inside, err := counts.Incr(ctx, crowdInside).Result()
				must(err)
				taken, err := counts.Incr(ctx, crowdTaken).Result()
				must(err)
				must(counts.Decr(ctx, crowdInside).Err())
				must(release(ctx))
				if inside > kind.most {
					crowded.Store(true)
				}
				done = taken >= sections
			}
		})
	}
	workers.Wait()
	faulttest.Emit("apart %v", !crowded.Load())
	must(client.Close())
}
