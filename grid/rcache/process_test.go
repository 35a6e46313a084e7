package rcache_test

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
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// loader is for a child process: it loads a value, which ends when a line comes. Args: the server's address, the value.
func loader(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithWatchdogTimeout(3*time.Second))
	if err == nil {
		value := ""
		value, err = rcache.New[string, string](c, "users", func(context.Context, string) (string, error) {
			faulttest.Emit("loads")
			bufio.NewScanner(os.Stdin).Scan()
			return args[1], nil
		}).Get(context.Background(), "a")
		faulttest.Emit("%s %v", value, err)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// F1, F31: the one that waits loads once the lease of the dead one is over.
func TestKilledLoaderIsReplacedByOneThatWaits(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	dies := faulttest.StartChild(t, "loader", server.Addr(), "first")
	require.Equal(t, "loads", dies.Next())
	waits := faulttest.StartChild(t, "loader", server.Addr(), "second")
	redistest.AwaitSubscribers(t, rdb, "redlatch_cache_load_channel:5:{users:a}", 1)

	asked := time.Now()
	left := rdb.PTTL(t.Context(), "redlatch_cache:5:{users:a}").Val()
	require.Positive(t, left)
	dies.Kill()
	require.Equal(t, "loads", waits.Next())
	assert.GreaterOrEqual(t, time.Since(asked), left-10*time.Millisecond, "the dead one has the key until its lease ends")
	waits.Send("")
	assert.Equal(t, "second <nil>", waits.Next())
	require.NoError(t, waits.Wait())
}
