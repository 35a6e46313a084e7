package scenario_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F17
func TestNoObjectNoticesThatRedisForgetsItsScripts(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		noticeNothing(t, []*redistest.Server{server}, func() redis.UniversalClient { return server.Client(t) })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3)
		noticeNothing(t, cluster.Nodes(), func() redis.UniversalClient { return cluster.Client(t) })
	})
}

// noticeNothing has each object held and waited for while all nodes forget their scripts again and again.
func noticeNothing(t *testing.T, nodes []*redistest.Server, connect func() redis.UniversalClient) {
	t.Helper()
	const lease = 3 * time.Second
	client := func() *redlatch.Client {
		c, err := redlatch.New(connect(), redlatch.WithWatchdogTimeout(lease), redlatch.WithObserver(redlatch.Observer{
			Renewed: func(_, lost int, err error) {
				assert.NoError(t, err, "a renewal")
				assert.Zero(t, lost, "holds")
			},
		}))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	holder, waiter := client(), client()

	ctx, stop := context.WithCancel(t.Context())
	var flushers sync.WaitGroup
	for _, node := range nodes {
		rdb := node.Client(t)
		flushers.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if ctx.Err() != nil {
					return
				}
				assert.NoError(t, rdb.ScriptFlush(t.Context()).Err())
			}
		})
	}
	uses, check := allUses(t, holder, waiter, 0)
	for round := range faulttest.Rounds(t, 2, 10) {
		useEach(t, uses, 100)
		all := enterAll(t, holder, waiter, guests(lease), func(g guest) string { return fmt.Sprint(g.name, "-", round) })
		redistest.AwaitChannels(t, connect(), channels(all))
		stayHeld(t, all, 2*lease)
		for _, h := range all {
			h.handOver(t)
		}
	}
	check(0)
	stop()
	flushers.Wait()
}
