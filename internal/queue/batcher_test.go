package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/script"
)

// gathering is a batcher of numbers whose calls do nothing but what the test says.
type gathering struct {
	batcher[int]
	sent  func(batch []int) // hears of each call; may be nil
	mu    sync.Mutex        // guards sizes
	sizes []int             // of the calls
}

// gather runs a test with a batcher, whose calls go to a Redis that refuses all connections, and so end at once.
func gather(t *testing.T, second secondCall, test func(t *testing.T, g *gathering)) {
	t.Helper()
	inBubble(t, func(t *testing.T, r rig) {
		g := &gathering{batcher: batcher[int]{manager: r.manager, second: second}}
		g.call = func(_ callNumber, batch []*entry[int]) *script.Call {
			values := make([]int, len(batch))
			for i, e := range batch {
				values[i] = e.value
			}
			g.mu.Lock()
			g.sizes = append(g.sizes, len(batch))
			g.mu.Unlock()
			if g.sent != nil {
				g.sent(values)
			}
			return waitScript.Call(1, "key")
		}
		test(t, g)
		r.manager.workers.Wait(t.Context())
		assert.Equal(t, [2]laneState{}, g.lanes)
	})
}

func TestWhatCallersGaveUpLeavesTheQueue(t *testing.T) {
	gather(t, never, func(t *testing.T, g *gathering) {
		outage := make(chan struct{})
		g.sent = func([]int) { <-outage }
		first := g.add(0)
		synctest.Wait()
		kept := g.add(1)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 1000 {
			r := g.addAll(i)
			_, err := r.entries[0].outcome(g.wait(gone, r))
			require.ErrorIs(t, err, context.Canceled)
		}
		assert.LessOrEqual(t, len(g.queue), 2, "waiting, and at most as many given up")
		close(outage)
		for _, e := range []*entry[int]{first, kept} {
			<-e.request.done
		}
		assert.Equal(t, []int{1, 1}, g.sizes)
		assert.Zero(t, g.unsent)
	})
}

func TestOperationsThatComeTogetherLeaveTogether(t *testing.T) {
	gather(t, never, func(t *testing.T, g *gathering) {
		for _, add := range []func(...int) *request[int]{g.addAll, g.addHere} {
			g.wait(t.Context(), add(make([]int, maxBatch+1)...))
			assert.Empty(t, add().entries)
		}
		assert.Equal(t, []int{maxBatch, 1, maxBatch, 1}, g.sizes)
	})
}

func TestOneRequestIsSentInOrderWhileOthersGoAhead(t *testing.T) {
	var mu sync.Mutex
	inCalls, most := map[int]int{}, 0 // calls in flight that have some of a request; calls in flight
	var order []int                   // of the first request
	calls := 0
	send := func(batch []int) {
		mu.Lock()
		calls++
		most = max(most, calls)
		of := map[int]bool{}
		for _, value := range batch {
			of[value/1000] = true
			if value < 1000 {
				order = append(order, value)
			}
		}
		for request := range of {
			inCalls[request]++
			assert.Equal(t, 1, inCalls[request], "a request is in one call at a time")
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		calls--
		for request := range of {
			inCalls[request]--
		}
	}
	gather(t, whenFull, func(t *testing.T, g *gathering) {
		g.sent = send
		var requests []*request[int]
		for r := range 4 {
			values := make([]int, 250)
			for i := range values {
				values[i] = 1000*r + i
			}
			requests = append(requests, g.addAll(values...))
		}
		for _, r := range requests {
			g.wait(t.Context(), r)
		}
		assert.Len(t, order, 250)
		assert.IsIncreasing(t, order)
		assert.LessOrEqual(t, most, 2)
	})
}

func TestACallThatIsFullDoesNotWaitForTheOneBefore(t *testing.T) {
	gather(t, whenFull, func(t *testing.T, g *gathering) {
		release := make(chan struct{})
		g.sent = func([]int) { <-release }
		count := func() int {
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.sizes)
		}
		g.add(0)
		synctest.Wait()
		g.addAll(make([]int, maxBatch-1)...)
		assert.Equal(t, 1, count(), "one that is not full waits for company")
		last := g.add(1)
		assert.Equal(t, 2, count())
		g.addAll(make([]int, 2*maxBatch)...)
		assert.Equal(t, 2, count(), "no third one")
		close(release)
		<-last.request.done
		g.manager.workers.Wait(t.Context())
		assert.Equal(t, []int{1, maxBatch, maxBatch, maxBatch}, g.sizes)
	})
}
