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
		if len(ended) == 0 || len(ended) < len(begun) {
			return fmt.Errorf("begun: %v, ended: %v", begun, ended)
		}
		return nil
	})
	require.Len(t, ended, len(begun))
	nodes := map[any]bool{}
	for _, line := range begun { // until the cluster has voted the other masters may refuse too
		assert.False(t, nodes[line["node"]], "%v", line)
		nodes[line["node"]] = true
	}
	assert.True(t, nodes[master.Addr()])
	nodes = map[any]bool{}
	for _, line := range ended {
		nodes[line["node"]] = true
	}
	assert.True(t, nodes[replica.Addr()])
	for _, hold := range holds {
		_ = hold.Unlock(t.Context()) // some may be lost: the masters vote when they do
	}
}
