package rlock_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const processLease = 2 * time.Second

// Two functions for other processes. They are registered before TestMain begins.
var (
	_ = asChild("rlock-contender", contender)
	_ = asChild("rlock-sleeper", sleeper)
)

func asChild(name string, fn func(args []string)) bool {
	faulttest.RegisterChild(name, fn)
	return true
}

// childClient is the client of a child process, which ends with it.
func childClient(addr string) *redlatch.Client {
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: addr}), redlatch.WithWatchdogTimeout(processLease), quiet)
	must(err)
	return c
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// contender takes the fenced lock again and again, under the eyes of a witness, until it is killed. Args: the server's
// address, the lock's name, the witness's name, its own.
func contender(args []string) {
	lock := childClient(args[0]).GetFencedLock(args[1])
	witness, me := faulttest.OpenWitness(args[0], args[2]), args[3]
	ctx := context.Background()
	for {
		hold, err := lock.Lock(ctx)
		must(err)
		witness.Enter(me)
		witness.Token(hold.Token())
		witness.Exit(me)
		must(hold.Unlock(ctx))
	}
}

// sleeper takes the fenced lock, says so, and waits for a line; then it does what a process does that was stopped in its
// work and knows nothing of it. Args: the server's address, the lock's name, the key of the fenced resource.
func sleeper(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	hold, err := childClient(args[0]).GetFencedLock(args[1]).Lock(context.Background())
	must(err)
	accepted, err := fencedWrite(context.Background(), rdb, args[2], hold.Token())
	must(err)
	faulttest.Emit("holds %d %t", hold.Token(), accepted)
	bufio.NewScanner(os.Stdin).Scan()
	accepted, err = fencedWrite(context.Background(), rdb, args[2], hold.Token())
	must(err)
	<-hold.Context().Done()
	faulttest.Emit("woke %t %v", accepted, context.Cause(hold.Context()))
	faulttest.Emit("unlock %v", hold.Unlock(context.Background()))
}

// fencedWrite writes to a resource that refuses a token below the highest that it has seen.
func fencedWrite(ctx context.Context, rdb *redis.Client, key string, token int64) (bool, error) {
	const source = `
local highest = tonumber(redis.call('get', KEYS[1]) or 0)
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'px', 60000)
return 1`
	n, err := rdb.Eval(ctx, source, []string{key}, token).Int()
	return n == 1, err
}

// F1
func TestKilledProcessesExcludeEachOther(t *testing.T) {
	server := serve(t)
	witness := faulttest.NewWitness(t, server.Addr(), "killed")
	start := func(n int) contestant {
		name := "child" + strconv.Itoa(n)
		return contestant{name, faulttest.StartChild(t, "rlock-contender", server.Addr(), "contended", "killed", name)}
	}
	const children = 3
	var running [children]contestant
	for i := range running {
		running[i] = start(i)
	}
	for kill := range faulttest.Rounds(t, 6, 50) {
		awaitEntries(t, witness, 20)
		victim := rand.N(children)
		if kill%2 == 0 {
			running[victim].Stop() // not for long: its lease goes on
			elapse(time.Now().Add(rand.N(processLease / 8)))
			running[victim].Cont()
			continue
		}
		running[victim].Kill()
		witness.Exit(running[victim].name)
		running[victim] = start(children + kill)
	}
	awaitEntries(t, witness, 20)
	for _, c := range running {
		c.Kill()
	}
	assert.Empty(t, witness.Overlaps())
	assert.Empty(t, witness.Regressions())
}

type contestant struct {
	name string
	*faulttest.Child
}

// awaitEntries waits until so many more sections have been entered.
func awaitEntries(t *testing.T, w *faulttest.Witness, more int) {
	t.Helper()
	goal := w.Entries() + more
	redistest.Eventually(t, longWait, "sections", func() error {
		if w.Entries() < goal {
			return errNotYet
		}
		return nil
	})
}

func TestStoppedProcessIsFencedAndLearnsOfItsLoss(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := serve(t)
	rdb, lag := server.Client(t), faulttest.MeasureLag(t, server.Addr())
	for round := range faulttest.Rounds(t, 2, 25) {
		name, resource := fmt.Sprint("stopped:", round), fmt.Sprint("resource:", round)
		child := faulttest.StartChild(t, "rlock-sleeper", server.Addr(), name, resource)
		said := strings.Fields(child.WaitFor("holds"))
		require.Equal(t, "true", said[2])
		old, err := strconv.ParseInt(said[1], 10, 64)
		require.NoError(t, err)
		child.Stop()

		started := time.Now()
		hold, err := clientAt(t, server.Addr(), redlatch.WithWatchdogTimeout(processLease)).GetFencedLock(name).Lock(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(started), 2*processLease+lag.Late())
		assert.Greater(t, hold.Token(), old)
		accepted, err := fencedWrite(t.Context(), rdb, resource, hold.Token())
		require.NoError(t, err)
		assert.True(t, accepted)

		child.Send("go on")
		child.Cont()
		woke := child.WaitFor("woke")
		assert.True(t, strings.HasPrefix(woke, "woke false "), woke)
		assert.Contains(t, woke, rlock.ErrLost.Error())
		assert.Contains(t, child.WaitFor("unlock"), rlock.ErrNotHeld.Error())
		require.NoError(t, child.Wait())
		assert.NoError(t, context.Cause(hold.Context()), "the new holder is left alone")
		assert.NoError(t, hold.Unlock(t.Context()))
	}
}
