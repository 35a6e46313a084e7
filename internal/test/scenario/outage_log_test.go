package scenario_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The node that answers at the end is not the one that failed.
func TestOutageThatAFailoverEndsIsLoggedOnce(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	master := cluster.Nodes()[0]
	replica := cluster.AddReplica(t, master)
	electable := func(answer string) {
		require.NoError(t, replica.Client(t).ConfigSet(t.Context(), "cluster-replica-no-failover", answer).Err())
	}
	// However long the vote takes, and not before a renewal has failed.
	require.NoError(t, replica.Client(t).ConfigSet(t.Context(), "cluster-replica-validity-factor", "0").Err())
	electable("yes")
	rdb := cluster.Client(t)
	var log logbook
	c, err := redlatch.New(rdb, log.option(), redlatch.WithWatchdogTimeout(2*failoverLease), redlatch.WithCloseGrace(0))
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
	begun, ended := map[any]int{}, 0 // by node: while the cluster votes, the other masters may refuse too
	read := func() {
		for _, line := range log.take() {
			switch line["msg"] {
			case "redlatch: renewals fail":
				begun[line["node"]]++
			case "redlatch: renewals succeed again":
				ended++
			}
		}
	}
	redistest.Eventually(t, time.Minute, "a renewal has failed", func() error {
		if read(); begun[master.Addr()] == 0 {
			return fmt.Errorf("begun: %v", begun)
		}
		return nil
	})
	electable("no")
	redistest.Eventually(t, time.Minute, "the outage is over", func() error {
		read()
		all := 0
		for _, n := range begun {
			all += n
		}
		if ended < all {
			return fmt.Errorf("begun: %v, ended: %d", begun, ended)
		}
		assert.Equal(t, all, ended)
		return nil
	})
	assert.Equal(t, 1, begun[master.Addr()], "%v", begun)
	for _, hold := range holds {
		_ = hold.Unlock(t.Context()) // some may be lost: the masters vote when they do
	}
}
