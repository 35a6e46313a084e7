package gridtest

import (
	"context"
	"testing"
	"time"

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

// NoLongCalls makes all calls on a big object, and finds none that the server took more than 5 ms for.
func NoLongCalls(t *testing.T, p *Place, name string, calls func(c *redlatch.Client, name string) []Call) {
	t.Helper()
	redistest.WatchCalls(t, p.Redis, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, call := range calls(p.Client, name) {
		require.NoError(t, call.Do(ctx), call.Verb)
	}
	for _, long := range redistest.LongCalls(t, p.Redis, "") {
		assert.Fail(t, "a call holds the server up", "%v: %.100v", long.Duration, long.Args)
	}
}
