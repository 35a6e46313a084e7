package rlatch_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// awaiters is for a child process: it has many goroutines wait for a latch, and says when all have returned. Args: the server's address,
// the latch's name, how many.
func awaiters(args []string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	n, err := strconv.Atoi(args[2])
	must(err)
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}))
	must(err)
	var all sync.WaitGroup
	for range n {
		all.Go(func() { must(c.GetCountDownLatch(args[1]).Await(context.Background())) })
	}
	all.Wait()
	faulttest.Emit("all returned")
}

// F22
func TestAwaitersInTenProcessesReturnWithoutMessages(t *testing.T) {
	const processes, each = 10, 50
	server := redistest.Start(t)
	proxy, lag := faulttest.NewProxy(t, server.Addr()), faulttest.MeasureLag(t, server.Addr())
	proxy.DropMessages(true)
	rdb := server.Client(t)
	for round := range faulttest.Rounds(t, 1, 20) {
		l := clientThrough(t, server.Addr()).GetCountDownLatch(fmt.Sprint("n", round))
		set(t, l, 1)
		var all []*faulttest.Child
		for range processes {
			all = append(all, faulttest.StartChild(t, "rlatch-awaiters", proxy.Addr(), l.Name(), strconv.Itoa(each)))
		}
		redistest.AwaitSubscribers(t, rdb, "redisson_countdownlatch__channel__{"+l.Name()+"}", processes)
		time.Sleep(recheck / 5) // the last of the goroutines of each has begun to wait
		down(t, l)
		start := time.Now()
		for _, child := range all {
			child.WaitFor("all returned")
		}
		require.Less(t, time.Since(start), recheck+250*time.Millisecond+lag.Late())
		for _, child := range all {
			require.NoError(t, child.Wait())
		}
	}
}
