package redlatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// F17
func TestNoObjectNoticesThatRedisForgetsItsScripts(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	server := redistest.Start(t)
	client := func() *redlatch.Client {
		c, err := redlatch.New(server.Client(t), redlatch.WithWatchdogTimeout(lease), redlatch.WithObserver(redlatch.Observer{
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
	var flusher sync.WaitGroup
	flusher.Go(func() {
		rdb, tick := server.Client(t), time.NewTicker(5*time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if ctx.Err() != nil {
				return
			}
			assert.NoError(t, rdb.ScriptFlush(t.Context()).Err())
		}
	})
	for round := range faulttest.Rounds(t, 2, 10) {
		all := enterAll(t, holder, waiter, guests(lease), func(g guest) string { return fmt.Sprint(g.name, "-", round) })
		redistest.AwaitChannels(t, server.Client(t), channels(all))
		stayHeld(t, all, 2*lease)
		for _, h := range all {
			h.handOver(t)
		}
	}
	stop()
	flusher.Wait()
}
