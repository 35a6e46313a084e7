package scenario_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

// crowdKind is an object for which processes wait. Clients are of one server each.
type crowdKind struct {
	servers int
	most    int64 // what those inside may weigh together
	base    float64
	woken   float64 // the part of the hand-offs that wake all waiters
	acquire func(ctx context.Context, clients []*redlatch.Client) (weight int64, release func(context.Context) error, err error)
}

// crowdKinds are the kinds of which a hand-off costs so many commands, and one for each process.
func crowdKinds() map[string]crowdKind {
	kinds := map[string]crowdKind{
		"semaphore": {1, 2, 2, 0, func(ctx context.Context, c []*redlatch.Client) (int64, func(context.Context) error, error) {
			s := c[0].GetSemaphore(crowdName)
			return 1, func(ctx context.Context) error { return s.Release(ctx, 1) }, s.Acquire(ctx, 1)
		}},
		"permits": {1, 2, 2, 0, func(ctx context.Context, c []*redlatch.Client) (int64, func(context.Context) error, error) {
			p, err := c[0].GetPermitSemaphore(crowdName).Acquire(ctx)
			if err != nil {
				return 0, nil, err
			}
			return 1, p.Release, nil
		}},
		"queue": {1, 2, 2, 0, func(ctx context.Context, c []*redlatch.Client) (int64, func(context.Context) error, error) {
			m, err := crowdQueue(c[0]).Take(ctx)
			if err != nil {
				return 0, nil, err
			}
			return 1, func(ctx context.Context) error { return m.Nack(ctx, 0) }, nil
		}},
		"election": {1, 1, 7, 0, func(ctx context.Context, c []*redlatch.Client) (int64, func(context.Context) error, error) {
			lead, err := c[0].GetElection(crowdName).Campaign(ctx)
			if err != nil {
				return 0, nil, err
			}
			return 1, lead.Resign, nil
		}},
	}
	lock := func(kind string, servers int, base float64, get func(c []*redlatch.Client) rlock.Locker) {
		kinds[kind] = crowdKind{servers, 1, base, 0, func(ctx context.Context, c []*redlatch.Client) (int64, func(context.Context) error, error) {
			hold, err := get(c).Lock(ctx)
			if err != nil {
				return 0, nil, err
			}
			return 1, hold.Unlock, nil
		}}
	}
	for kind, base := range map[string]float64{"plain": 2, "fenced": 2, "fair": 4, "writer": 3} {
		lock(kind, 1, base, func(c []*redlatch.Client) rlock.Locker { return lockKinds[kind](c[0], crowdName) })
	}
	lock("multi", 1, 4, func(c []*redlatch.Client) rlock.Locker {
		return c[0].GetMultiLock(c[0].GetLock(crowdName), c[0].GetLock(crowdName+"-2"))
	})
	// No message wakes the head of a process. It asks three servers six times within a moment, and then ten times a second.
	lock("RedLock", 3, 24, func(c []*redlatch.Client) rlock.Locker {
		return c[0].GetRedLock(c[0].GetLock(crowdName), c[1].GetLock(crowdName), c[2].GetLock(crowdName))
	})
	// Every fourth is a writer, after which all readers ask once.
	var turn atomic.Int64
	kinds["reader"] = crowdKind{1, crowdOfReaders, 1, 0.25, func(ctx context.Context, c []*redlatch.Client) (int64, func(context.Context) error, error) {
		kind, weight := "reader", int64(1)
		if turn.Add(1)%4 == 0 {
			kind, weight = "writer", crowdOfReaders
		}
		hold, err := lockKinds[kind](c[0], crowdName).Lock(ctx)
		if err != nil {
			return 0, nil, err
		}
		return weight, hold.Unlock, nil
	}}
	return kinds
}

// crowdQueue is a queue whose messages go from one to another for ever.
func crowdQueue(c *redlatch.Client) *rdelayedqueue.Queue[string] {
	return redlatch.GetDelayedQueue[string](c, crowdName, rdelayedqueue.WithMaxAttempts(0))
}

// crowdOfReaders is more readers than there are, and what a writer weighs.
const crowdOfReaders = 1 << 20

// The processes share nothing but the server. A hand-off costs at most a command for each process and a few more, and with four times
// as many waiters a quarter and half a command more than with the few. Readers ask each by itself.
//
// F21
func TestCommandsGrowWithProcessesAndNotWithWaiters(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const waiters = 8
	processes := []int{2, faulttest.Rounds(t, 4, 20)}
	for kind, k := range crowdKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var err error
			for range 3 { // some commands come by the clock, so a slow moment of the machine has more of them in a hand-off
				if err = fewCommands(t, kind, k, processes, waiters); err == nil {
					break
				}
			}
			assert.NoError(t, err)
		})
	}
}

// fewCommands returns an error if a hand-off costs more commands than it may.
func fewCommands(t *testing.T, kind string, k crowdKind, processes []int, waiters int) error {
	t.Helper()
	few := 0.0
	for _, n := range processes {
		few = commandsPerHandOff(t, kind, n, waiters)
		t.Logf("%d processes of %d waiters: %.2f commands per hand-off", n, waiters, few)
		if most := float64(n) + k.base + k.woken*float64(n*waiters); few > most {
			return fmt.Errorf("%d processes: %.2f commands per hand-off, and not %.2f", n, few, most)
		}
	}
	many := commandsPerHandOff(t, kind, processes[1], 4*waiters)
	t.Logf("%d processes of %d waiters: %.2f commands per hand-off", processes[1], 4*waiters, many)
	most := 1.25*few + 0.5
	if k.woken > 0 {
		most = float64(processes[1]) + k.base + k.woken*float64(4*processes[1]*waiters)
	}
	if many > most {
		return fmt.Errorf("four times as many waiters: %.2f commands per hand-off, and not %.2f", many, most)
	}
	return nil
}

// commandsPerHandOff has some goroutines of some processes acquire one object again and again, each time through Redis.
func commandsPerHandOff(t *testing.T, kind string, processes, waiters int) float64 {
	t.Helper()
	server := redistest.Start(t)
	rdb := server.Client(t)
	var proxies []*faulttest.Proxy
	var addrs []string
	for i := range crowdKinds()[kind].servers {
		target := server
		if i > 0 {
			target = redistest.Start(t)
		}
		proxies = append(proxies, faulttest.NewProxy(t, target.Addr()))
		addrs = append(addrs, proxies[i].Addr())
	}
	total := func() (n int) {
		for _, p := range proxies {
			n += p.Total()
		}
		return n
	}
	client, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	furnishCrowd(t, client, kind)
	sections := faulttest.Rounds(t, 200, 600)
	children := make([]*faulttest.Child, processes)
	for i := range children {
		children[i] = faulttest.StartChild(t, "crowd", kind, server.Addr(), strconv.Itoa(waiters), strconv.Itoa(sections), strings.Join(addrs, ","))
	}
	for _, child := range children {
		child.WaitFor("ready")
	}
	before := total()
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
	return float64(total()-before) / float64(taken)
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
	switch n := int(crowdKinds()[kind].most); kind {
	case "permits", "semaphore":
		ok, err := set(t.Context(), n)
		require.NoError(t, err)
		require.True(t, ok)
	case "queue":
		for range n {
			_, err := crowdQueue(c).Offer(t.Context(), "message", 0)
			require.NoError(t, err)
		}
	}
}

// crowdProcess is a process whose goroutines acquire one object until all processes have acquired it often enough. What they count
// goes past the proxies. Args: the kind, the server's address, how many goroutines, how many sections, the proxies' addresses.
func crowdProcess(args []string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx, kind := context.Background(), crowdKinds()[args[0]]
	waiters, err := strconv.Atoi(args[2])
	must(err)
	sections, err := strconv.ParseInt(args[3], 10, 64)
	must(err)
	counts := redis.NewClient(&redis.Options{Addr: args[1]})
	var clients []*redlatch.Client
	for addr := range strings.SplitSeq(args[4], ",") {
		rdb := redis.NewClient(&redis.Options{Addr: addr, MinIdleConns: 1})
		client, err := redlatch.New(rdb, redlatch.WithHandoffBudget(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		must(err)
		hold, err := client.GetLock("warm " + strconv.Itoa(os.Getpid())).Lock(ctx) // has the connection ready
		must(err)
		must(hold.Unlock(ctx))
		clients = append(clients, client)
	}
	faulttest.Emit("ready")
	bufio.NewScanner(os.Stdin).Scan()

	var workers sync.WaitGroup
	var crowded atomic.Bool // more were inside than may be
	for range waiters {
		workers.Go(func() {
			for done := false; !done; {
				weight, release, err := kind.acquire(ctx, clients)
				must(err)
				inside, err := counts.IncrBy(ctx, crowdInside, weight).Result()
				must(err)
				taken, err := counts.Incr(ctx, crowdTaken).Result()
				must(err)
				must(counts.DecrBy(ctx, crowdInside, weight).Err())
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
	for _, client := range clients {
		must(client.Close())
	}
}
