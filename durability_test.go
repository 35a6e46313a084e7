package redlatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// knowsWaitaof returns whether a server can be asked to confirm by its disk.
func knowsWaitaof(t *testing.T, server *redistest.Server) bool {
	t.Helper()
	known, err := server.Client(t).Do(t.Context(), "command", "info", "waitaof").Slice()
	return err == nil && known[0] != nil
}

// Each call is the last thing that its server does.
//
// F9
func TestConfirmedCallsOutliveACrashOfAServerWithAFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	if !knowsWaitaof(t, server) {
		t.Skip("the server does not know WAITAOF")
	}
	plain, err := redlatch.New(server.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plain.Close()) })
	furnishConfirmed(t, plain)
	for _, tc := range confirmedCalls() {
		c, err := redlatch.New(server.Client(t), redlatch.WithDurability(2*time.Second), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		require.NoError(t, tc.call(t.Context(), c), tc.name)
		server.Restart()
		if tc.undone != nil {
			undone, err := tc.undone(t.Context(), plain)
			require.NoError(t, err, tc.name)
			require.False(t, undone, "%s is lost", tc.name)
		}
		require.NoError(t, c.Close()) // so that the next call has it
	}
	requireCounted(t, plain, 1)
}
