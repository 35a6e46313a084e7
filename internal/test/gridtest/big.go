package gridtest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Fill writes n elements by a command, past the client.
func Fill(t *testing.T, p *Place, key, command string, n int, element func(i int) []any) {
	t.Helper()
	const step = 1000
	for from := 0; from < n; from += step {
		args := []any{command, key}
		for i := from; i < from+step; i++ {
			args = append(args, element(i)...)
		}
		require.NoError(t, p.Redis.Do(t.Context(), args...).Err())
	}
}

// NoLongCalls makes all calls on a big object, and finds none that the server takes more than 5 ms for. A machine that is busy holds up any
// call now and then: a method fails whose calls were long at each of several tries, more than one in a hundred.
func NoLongCalls(t *testing.T, p *Place, name string, calls func(c *redlatch.Client, name string) []Call) {
	t.Helper()
	const tries = 10
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, call := range calls(p.Client, name) {
		var long []redis.SlowLog
		for range tries {
			redistest.WatchCalls(t, p.Redis, 5*time.Millisecond)
			sent := p.Calls()
			require.NoError(t, call.Do(ctx), call.Verb)
			long = redistest.LongCalls(t, p.Redis, "")
			if len(long) <= (p.Calls()-sent)/100 {
				long = nil
				break
			}
		}
		for _, l := range long {
			assert.Fail(t, "a call holds the server up", "%s: %v: %.100v", call.Verb, l.Duration, l.Args)
		}
	}
}
