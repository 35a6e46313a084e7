package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Beside the handshake of its connection, a program under a lock costs the acquisition before it and the release after it.
func TestProgramUnderALockCostsTwoRoundTrips(t *testing.T) {
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	r := &rig{url: "redis://" + proxy.Addr()}
	r.must(t, "lock", "run", "nightly", "--", "true") // Redis knows the scripts
	var mu sync.Mutex
	var sent []string
	proxy.OnCommand(func(cmd []string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, strings.ToLower(cmd[0]))
	})
	r.must(t, "lock", "run", "nightly", "--", "true")
	mu.Lock()
	defer mu.Unlock()
	handshake := len(sent) - 2
	require.Positive(t, handshake)
	assert.Subset(t, []string{"hello", "client"}, sent[:handshake])
	assert.Equal(t, []string{"evalsha", "evalsha"}, sent[handshake:])
}
