package rlock_test

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestCommandsOfTheScripts(t *testing.T) {
	t.Parallel()
	server := serve(t)
	rdb := server.Client(t)
	mine, theirs := clientAt(t, server.Addr()).GetLock("orders"), clientAt(t, server.Addr()).GetLock("orders")
	counted := func(what func()) map[string]int {
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		what()
		stats, err := rdb.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		calls := map[string]int{}
		for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
			switch m[1] {
			case "eval", "evalsha", "pttl", "hset", "hexists", "pexpire", "hget", "exists", "type":
				calls[m[1]], err = strconv.Atoi(m[2])
				require.NoError(t, err)
			}
		}
		return calls
	}
	locktest.Free(t, mine) // Redis knows the scripts

	var h *rlock.Hold
	assert.Equal(t, map[string]int{"evalsha": 1, "pttl": 1, "hset": 1, "pexpire": 1}, counted(func() {
		h = locktest.Acquire(t, t.Context(), mine)
	}), "free")
	assert.Equal(t, map[string]int{"evalsha": 1, "pttl": 1, "hexists": 1}, counted(func() {
		locktest.Refused(t, theirs)
	}), "busy, for a call that asks once: it looks at the type too")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting <-chan locktest.Outcome
	busy := counted(func() {
		waiting = locktest.Begin(func() (*rlock.Hold, error) { return theirs.Lock(ctx) })
		redistest.AwaitSubscribers(t, rdb, "redisson_lock__channel:{orders}", 1)
		redistest.Eventually(t, 10*time.Second, "the try after the confirmation", func() error {
			if n := rdb.Info(t.Context(), "commandstats"); !regexp.MustCompile(`cmdstat_hexists:`).MatchString(n.Val()) {
				return assert.AnError
			}
			return nil
		})
	})
	cancel()
	locktest.Failed(t, waiting, context.Canceled)
	assert.Equal(t, 1, busy["hexists"], "of a waiter's tries the second looks at the type")
	assert.GreaterOrEqual(t, busy["evalsha"], 2)
	assert.Equal(t, busy["evalsha"], busy["pttl"])
	assert.Len(t, busy, 3)
	locktest.Unlock(t, h)
}
