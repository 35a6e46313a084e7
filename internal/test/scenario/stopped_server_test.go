package scenario_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F1, F5: a server that stands still renews nothing. Whoever holds something learns before the end of its lease that it cannot rely on it
// any more, and so before anybody else has it.
func TestHoldersOfAStoppedServerLearnBeforeOthersHaveIt(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	server := redistest.Start(t)
	client := func() *redlatch.Client {
		c, err := redlatch.New(server.Client(t), redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() }) // what is lost by then cannot be released
		return c
	}
	var leased []guest
	for _, g := range guests(lease) {
		switch g.name {
		case "semaphore", "latch": // they have no lease
		case "queue", "scheduler", "task": // its message may come back to the client that had it
		default:
			leased = append(leased, g)
		}
	}
	all := enterAll(t, client(), client(), leased, func(g guest) string { return g.name })
	redistest.AwaitChannels(t, server.Client(t), channels(all))
	entered := make(chan heldGuest, len(all)) // with what its holder says at that moment
	for _, h := range all {
		go func() {
			assert.NoError(t, <-h.waited, h.name)
			alive := h.alive()
			h.alive = func() error { return alive }
			entered <- h
		}()
	}
	server.Pause()
	time.Sleep(lease) // on the server's clock: whatever it has is over then
	server.Resume()
	for range all {
		select {
		case h := <-entered:
			assert.Error(t, h.alive(), "%s: two have it", h.name)
		case <-time.After(15 * time.Second):
			require.Fail(t, "somebody waits on")
		}
	}
}
