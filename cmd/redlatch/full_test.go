package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F28
func TestLockRunOnAFullRedisIsUnavailable(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	code, _, text := (&rig{}).run(t.Context(), "-u", "redis://"+server.Addr(), "lock", "run", "nightly", "--no-wait", "--", "true")
	assert.Equal(t, exitUnavailable, code)
	assert.Equal(t, "redlatch: rlock: try lock \"nightly\": redis unavailable: it refuses writes: "+
		"OOM command not allowed when used memory > 'maxmemory'.\n", text)
}
