package redlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F29
func TestAKilledMasterCostsNoHoldAndFewSeconds(t *testing.T) {
	const lease, name = 12 * time.Second, "orders"
	c := redistest.StartCluster(t, 3)
	master := c.Owner(t, name)
	replica := c.AddReplica(t, master)
	client := func() *redlatch.Client {
		p, err := redlatch.New(c.Client(t), redlatch.WithWatchdogTimeout(lease))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, p.Close()) })
		return p
	}
	holder, waiter, caller := client(), client(), client()
	hold, err := holder.GetLock(name).Lock(t.Context())
	require.NoError(t, err)
	probe := "{" + name + "}:free"
	release, err := caller.GetLock(probe).TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, release.Unlock(t.Context()))
	acquired := make(chan *rlock.Hold, 1)
	go func() {
		h, err := waiter.GetLock(name).Lock(context.WithoutCancel(t.Context()))
		assert.NoError(t, err)
		acquired <- h
	}()
	redistest.AwaitSubscribers(t, c.Client(t), "redisson_lock__channel:{"+name+"}", 1)

	redistest.AwaitSync(t, master, replica)
	master.Kill()
	node := replica.Client(t)
	redistest.Eventually(t, 20*time.Second, "the replica takes over", func() error {
		return node.Set(t.Context(), probe+":probe", 1, time.Minute).Err()
	})
	up := time.Now()
	require.EqualValues(t, 1, node.Exists(t.Context(), name).Val(), "the new master has the lock")
	redistest.Eventually(t, 20*time.Second, "calls go on", func() error {
		h, err := caller.GetLock(probe).TryLock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		return err
	})
	t.Logf("calls went on %v after the new master was up", time.Since(up))
	assert.Less(t, time.Since(up), 3*time.Second)
	time.Sleep(lease) // longer than anything could be held without a renewal
	require.NoError(t, context.Cause(hold.Context()), "the hold is kept")
	select {
	case <-acquired:
		t.Fatal("two hold the lock")
	default:
	}
	unlocked := time.Now()
	require.NoError(t, hold.Unlock(t.Context()))
	h := <-acquired
	t.Logf("the waiter acquired %v after the release", time.Since(unlocked))
	assert.Less(t, time.Since(unlocked), 3*time.Second)
	require.NoError(t, h.Unlock(t.Context()))
}
