package rbarrier_test

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
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// childPlace is that of the clients of child processes.
const childPlace = 2 * time.Second

func clientOf(addr string) *redlatch.Client {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: addr}), redlatch.WithWatchdogTimeout(childPlace))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	return c
}

// arrival is for a child process: it waits for two others, and says how its round has ended. Args: the server's address.
func arrival(args []string) {
	faulttest.Emit("%v", clientOf(args[0]).GetBarrier("start", 3).Await(context.Background()))
}

// participation is for a child process: it enters with another one, and leaves or stays, and says how each call has ended. Args: the
// server's address, leaves or stays.
func participation(args []string) {
	d := clientOf(args[0]).GetDoubleBarrier("work", 2)
	faulttest.Emit("%v", d.Enter(context.Background()))
	if args[1] == "stays" {
		select {}
	}
	faulttest.Emit("%v", d.Leave(context.Background()))
}

// F1, F11: a process that is killed with SIGKILL while it waits breaks the round of the others. The next round is whole.
func TestKilledParticipantBreaksTheRound(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	arrive := func() *faulttest.Child { return faulttest.StartChild(t, "arrival", server.Addr()) }
	lag := faulttest.MeasureLag(t, server.Addr())
	for range faulttest.Rounds(t, 1, 10) {
		dies, waits := arrive(), arrive()
		redistest.Eventually(t, 20*time.Second, "both wait", func() error {
			n, err := rdb.ZCard(t.Context(), "redlatch_barrier_arrived:{start}").Result()
			if err == nil && n != 2 {
				err = fmt.Errorf("%d wait", n)
			}
			return err
		})
		killed := time.Now()
		dies.Kill()
		require.Equal(t, `rbarrier: await "start": barrier broken`, waits.Next())
		assert.Less(t, time.Since(killed), childPlace+recheck+lag.Late())
		require.NoError(t, waits.Wait())
		for _, one := range []*faulttest.Child{arrive(), arrive(), arrive()} {
			assert.Equal(t, "<nil>", one.Next())
			require.NoError(t, one.Wait())
		}
	}
}

// F1, F11: a process that is killed with SIGKILL while it has a place inside breaks the round of the others. The next round is whole.
func TestKilledParticipantInsideBreaksTheRound(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	enter := func(then string) *faulttest.Child {
		return faulttest.StartChild(t, "participation", server.Addr(), then)
	}
	lag := faulttest.MeasureLag(t, server.Addr())
	for range faulttest.Rounds(t, 1, 10) {
		dies, leaves := enter("stays"), enter("leaves")
		require.Equal(t, "<nil>", dies.Next())
		require.Equal(t, "<nil>", leaves.Next())
		killed := time.Now()
		dies.Kill()
		require.Equal(t, `rbarrier: leave "work": barrier broken`, leaves.Next())
		assert.Less(t, time.Since(killed), childPlace+recheck+lag.Late())
		require.NoError(t, leaves.Wait())
		for _, one := range []*faulttest.Child{enter("leaves"), enter("leaves")} {
			assert.Equal(t, "<nil>", one.Next())
			assert.Equal(t, "<nil>", one.Next())
			require.NoError(t, one.Wait())
		}
	}
}
