package redistest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// WatchCalls has a server, of which there must be no other user, note down each call that takes as long as from, or longer.
func WatchCalls(tb testing.TB, rdb *redis.Client, from time.Duration) {
	tb.Helper()
	for name, value := range map[string]any{"slowlog-max-len": 100_000, "slowlog-log-slower-than": from.Microseconds()} {
		require.NoError(tb, rdb.ConfigSet(tb.Context(), name, fmt.Sprint(value)).Err())
	}
	require.NoError(tb, rdb.Do(tb.Context(), "SLOWLOG", "RESET").Err())
}

// LongCalls ends what WatchCalls began, and returns what was noted down of commands that begin with a text, the longest call first.
func LongCalls(tb testing.TB, rdb *redis.Client, command string) []redis.SlowLog {
	tb.Helper()
	require.NoError(tb, rdb.ConfigSet(tb.Context(), "slowlog-log-slower-than", "-1").Err())
	all, err := rdb.SlowLogGet(tb.Context(), -1).Result()
	require.NoError(tb, err)
	var calls []redis.SlowLog
	for _, call := range all {
		if strings.HasPrefix(strings.ToLower(call.Args[0]), command) {
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b redis.SlowLog) int { return cmp.Compare(b.Duration, a.Duration) })
	return calls
}
