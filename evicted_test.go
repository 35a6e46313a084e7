package redlatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F19: whoever holds something that Redis evicts is told at the next renewal, and what is released late takes nothing from who
// has it now.
func TestEvictedHoldsAreLostAndTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-random")
	rdb := server.Client(t)
	client := func() *redlatch.Client {
		c, err := redlatch.New(server.Client(t), redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	var leased []guest
	for _, g := range guests(lease) {
		switch g.name {
		case "semaphore", "latch", "queue": // they have no lease, or lose messages
		default:
			leased = append(leased, g)
		}
	}
	enter := func(c *redlatch.Client) (all []heldGuest) {
		for _, g := range leased {
			h := heldGuest{guest: g}
			h.alive, h.release = g.enter(t, c, g.name)
			all = append(all, h)
		}
		return all
	}
	first, second := client(), client()
	for range faulttest.Rounds(t, 1, 20) {
		old := enter(first)
		evictEverything(t, rdb)
		evicted := time.Now()
		present := enter(second)
		for _, h := range old {
			redistest.Eventually(t, lease, h.name+" is lost", func() error {
				if h.alive() == nil {
					return fmt.Errorf("it is held")
				}
				return nil
			})
			assert.ErrorIs(t, h.alive(), rlock.ErrLost, h.name)
			assert.Error(t, h.release(t.Context()), h.name)
		}
		t.Logf("all were told %v after the eviction", time.Since(evicted))
		for _, h := range present {
			assert.NoError(t, h.alive(), h.name)
			assert.NoError(t, h.release(t.Context()), h.name)
		}
	}
}

// evictEverything writes to a full server until it has evicted all keys that were there.
func evictEverything(t *testing.T, rdb *redis.Client) {
	t.Helper()
	before, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	// What an earlier round has written is written again.
	before = slices.DeleteFunc(before, func(key string) bool { return strings.HasPrefix(key, "filler:") })
	require.NotEmpty(t, before)
	info, err := rdb.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	var used int
	_, err = fmt.Sscan(info["Memory"]["used_memory"], &used)
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(used+1<<20)).Err())
	defer func() {
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}()
	value := strings.Repeat("x", 32<<10)
	for i := range 2000 {
		pipe := rdb.Pipeline()
		for j := range 10 {
			pipe.Set(t.Context(), fmt.Sprint("filler:", i, ":", j), value, time.Minute)
		}
		left := pipe.Exists(t.Context(), before...)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		if left.Val() == 0 {
			return
		}
	}
	require.Fail(t, "some keys stay")
}
