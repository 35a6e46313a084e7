package redlatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The node that answers at the end is not the one that failed.
func TestOutageThatAFailoverEndsIsLoggedOnce(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	master := cluster.Nodes()[0]
	replica := cluster.AddReplica(t, master)
	rdb := cluster.Client(t)
	var log logbook
	c, err := redlatch.New(rdb, log.option(), redlatch.WithWatchdogTimeout(failoverLease), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	var holds []*rlock.Hold
	for i := range 30 { // on all masters
		hold, err := c.GetLock(fmt.Sprint("orders", i)).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, hold)
	}
	redistest.AwaitSync(t, master, replica)
	master.Kill()
	var begun, ended []map[string]any
	redistest.Eventually(t, time.Minute, "the outage is over", func() error {
		for _, line := range log.take() {
			switch line["msg"] {
			case "redlatch: renewals fail":
				begun = append(begun, line)
			case "redlatch: renewals succeed again":
				ended = append(ended, line)
			}
		}
		if len(ended) == 0 {
			return fmt.Errorf("begun: %v", begun)
		}
		return nil
	})
	require.Len(t, begun, 1)
	require.Len(t, ended, 1)
	assert.Equal(t, master.Addr(), begun[0]["node"])
	assert.Equal(t, replica.Addr(), ended[0]["node"])
	for _, hold := range holds {
		_ = hold.Unlock(t.Context()) // some may be lost: the masters vote when they do
	}
}
