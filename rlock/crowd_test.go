package rlock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// What a crowd costs is measured in commands for each hand-off: unlike the share of a processor it does not depend on the machine,
// on what else runs there, and on whether the clients are processes or, as here, share one.
//
// F21
func TestThousandLocalWaitersCostThreeCommandsAHandOff(t *testing.T) {
	for title, opts := range map[string][]redlatch.Option{
		"with a hand-off budget": nil,
		"without":                {redlatch.WithHandoffBudget(0)},
	} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, held elsewhere %t", title, far), func(t *testing.T) {
				server := serve(t)
				proxy := faulttest.NewProxy(t, server.Addr())
				client := clientAt(t, proxy.Addr(), opts...)
				holder := client
				if far {
					holder = clientAt(t, server.Addr())
				}
				first := locktest.Acquire(t, t.Context(), holder.GetLock("f21"))
				assert.LessOrEqual(t, locktest.Waiters(t, proxy, first, client.GetLock("f21"), locktest.Herd{N: 1000}), 3.0)
			})
		}
	}
}

// F21
func TestCommandsGrowWithClientsAndNotWithWaiters(t *testing.T) {
	redistest.Long(t)
	few := commandsPerHandOff(t, 2, 8)
	for _, clients := range []int{1, 4, faulttest.Rounds(t, 8, 20)} {
		cost := commandsPerHandOff(t, clients, 8)
		t.Logf("%2d clients of 8: %.2f commands per hand-off", clients, cost)
		assert.LessOrEqual(t, cost, 1.5*float64(clients)+3, "%d clients", clients)
	}
	many := commandsPerHandOff(t, 2, 80)
	t.Logf(" 2 clients of 8: %.2f commands per hand-off; of 80: %.2f", few, many)
	assert.LessOrEqual(t, many, 1.25*few+0.5, "ten times as many waiters")
}

// commandsPerHandOff has some goroutines of some clients take one lock again and again, each time through Redis.
func commandsPerHandOff(t *testing.T, clients, waiters int) float64 {
	t.Helper()
	server := serve(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	sections := int64(faulttest.Rounds(t, 1000, 2000))
	var left, done, inside atomic.Int64
	left.Store(sections)
	var workers sync.WaitGroup
	for range clients {
		lock := clientAt(t, proxy.Addr(), redlatch.WithHandoffBudget(0)).GetLock("f21")
		for range waiters {
			workers.Go(func() {
				for left.Add(-1) >= 0 {
					hold, err := lock.Lock(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					assert.EqualValues(t, 1, inside.Add(1))
					inside.Add(-1)
					done.Add(1)
					assert.NoError(t, hold.Unlock(t.Context()))
				}
			})
		}
	}
	workers.Wait()
	require.Equal(t, sections, done.Load())
	return float64(proxy.Total()) / float64(sections)
}
