package rratelimiter_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rratelimiter"
)

const (
	sharedRate  = 200             // tokens a second
	sharedBurst = 60 * sharedRate // what comes back to a full limiter is lost, so that it is never full again
	sharedKey   = "redlatch_rate:3:{api:a}"
)

func shared(c *redlatch.Client) *rratelimiter.Limiter {
	return c.GetRateLimiter("api", rratelimiter.Per(sharedRate, time.Second), rratelimiter.WithBurst(sharedBurst))
}

// taker takes what it can get, with several goroutines, and says how much that was. Args: the address, for how many seconds.
func taker(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}))
	seconds, bad := strconv.Atoi(args[1])
	if err := errors.Join(err, bad); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	var taken atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for range 4 {
		all.Go(func() {
			for time.Now().Before(end) {
				r, err := shared(c).Allow(context.Background(), "a", 1)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(3)
				}
				if r.Allowed {
					taken.Add(1)
				} else {
					<-time.After(r.RetryAfter)
				}
			}
		})
	}
	all.Wait()
	faulttest.Emit("%d", taken.Load())
}

// By the clock of Redis, which the state of the limiter tells exactly, the processes get all that the rate allows, and no more.
func TestProcessesGetExactlyTheRate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	const each = time.Second / sharedRate
	back := func() time.Duration { // on the clock of Redis
		t.Helper()
		micros, err := rdb.Get(t.Context(), sharedKey).Int64()
		require.NoError(t, err, "a token is a whole number of microseconds")
		return time.Duration(micros) * time.Microsecond
	}
	taken := int64(sharedBurst)
	require.True(t, allow(t, shared(c), "a", sharedBurst).Allowed, "what is full gets no more")
	begin := back() - sharedBurst*each
	seconds := faulttest.Rounds(t, 2, 60)
	children := make([]*faulttest.Child, 4)
	for i := range children {
		children[i] = faulttest.StartChild(t, "taker", server.Addr(), strconv.Itoa(seconds))
	}
	for _, child := range children {
		got := int64(0)
		for line := range child.Lines() {
			got, err = strconv.ParseInt(line, 10, 64)
			require.NoError(t, err)
		}
		assert.Positive(t, got, "each process gets some")
		taken += got
	}
	r := allow(t, shared(c), "a", 1)
	for ; r.Allowed; r = allow(t, shared(c), "a", 1) {
		taken++
	}
	took := back() - r.ResetAfter - begin
	assert.Greater(t, took, time.Duration(seconds)*time.Second)
	assert.Equal(t, int64(sharedBurst+took/each), taken, "in %v", took)
}
