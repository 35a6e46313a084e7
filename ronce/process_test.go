package ronce_test

import (
	"bufio"
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

// doer is for a child process: it runs a function that ends when a line comes. Args: the server's address, the value.
func doer(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithWatchdogTimeout(3*time.Second))
	if err == nil {
		value, shared := "", false
		value, shared, err = redlatch.GetOnce[string](c, "webhooks").Do(context.Background(), "a", func(context.Context) (string, error) {
			faulttest.Emit("runs")
			bufio.NewScanner(os.Stdin).Scan()
			return args[1], nil
		})
		faulttest.Emit("%s %v %v", value, shared, err)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// F1: the one that waits runs its own function once the lease of the dead one is over, and its value is kept.
func TestKilledRunnerIsReplacedByOneThatWaits(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	dies := faulttest.StartChild(t, "doer", server.Addr(), "first")
	require.Equal(t, "runs", dies.Next())
	waits := faulttest.StartChild(t, "doer", server.Addr(), "second")
	redistest.AwaitSubscribers(t, rdb, "redlatch_once_channel:8:{webhooks:a}", 1)

	asked := time.Now()
	left := rdb.PTTL(t.Context(), "redlatch_once:8:{webhooks:a}").Val()
	require.Positive(t, left)
	dies.Kill()
	require.Equal(t, "runs", waits.Next())
	assert.GreaterOrEqual(t, time.Since(asked), left-2*time.Millisecond, "the dead one has the key until its lease ends")
	waits.Send("")
	assert.Equal(t, "second false <nil>", waits.Next())
	require.NoError(t, waits.Wait())

	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	value, ok, err := redlatch.GetOnce[string](c, "webhooks").Peek(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, []any{"second", true}, []any{value, ok})
}
