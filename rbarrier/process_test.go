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
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// arrival is for a child process: it waits for two others, and says how its round has ended. Args: the server's address.
func arrival(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	faulttest.Emit("%v", c.GetBarrier("start", 3).Await(context.Background()))
}

// F1, F11: a process that is killed with SIGKILL while it waits breaks the round of the others. The next round is whole.
func TestKilledParticipantBreaksTheRound(t *testing.T) {
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
		assert.Less(t, time.Since(killed), place+2*recheck+lag.Late())
		require.NoError(t, waits.Wait())
		for _, one := range []*faulttest.Child{arrive(), arrive(), arrive()} {
			assert.Equal(t, "<nil>", one.Next())
			require.NoError(t, one.Wait())
		}
	}
}
