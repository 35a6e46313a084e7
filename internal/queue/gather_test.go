package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatCallersGaveUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crew crew
		outage := make(chan struct{})
		sent := 0
		g := gatherer[int]{crew: &crew, weight: func(*int) int { return 1 }, send: func(batch []*entry[int]) {
			<-outage
			sent += len(batch)
		}}
		first := g.add(0)
		synctest.Wait()
		kept := g.add(1)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 1000 {
			e := g.addAll(i)
			g.wait(gone, e)
			_, err := e.entries[0].outcome(gone.Err())
			require.ErrorIs(t, err, context.Canceled)
		}
		assert.LessOrEqual(t, len(g.queue), 2, "waiting, and at most as many given up")
		close(outage)
		for _, e := range []*entry[int]{first, kept} {
			_, err := e.settled(t.Context())
			require.NoError(t, err)
		}
		crew.Wait(t.Context())
		assert.Equal(t, 2, sent)
		assert.Zero(t, g.unsent)
	})
}

func TestOperationsThatComeTogetherLeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crew crew
		var sizes []int
		g := gatherer[int]{crew: &crew, weight: func(*int) int { return 1 }, send: func(batch []*entry[int]) { sizes = append(sizes, len(batch)) }}
		for _, add := range []func(...int) *errand[int]{g.addAll, g.do} {
			g.wait(t.Context(), add(make([]int, maxBatch+1)...))
			assert.Empty(t, add().entries)
		}
		crew.Wait(t.Context())
		assert.Equal(t, []int{maxBatch, 1, maxBatch, 1}, sizes)
	})
}

func TestOneErrandIsSentInOrderWhileOthersGoAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crew crew
		var mu sync.Mutex
		under, most := map[int]int{}, 0 // calls under way that have some of an errand; calls under way
		var order []int                 // of the first errand
		calls := 0
		g := gatherer[int]{crew: &crew, ahead: true, weight: func(*int) int { return 1 }}
		g.send = func(batch []*entry[int]) {
			mu.Lock()
			calls++
			most = max(most, calls)
			of := map[int]bool{}
			for _, e := range batch {
				of[e.value/1000] = true
				if e.value < 1000 {
					order = append(order, e.value)
				}
			}
			for errand := range of {
				under[errand]++
				assert.Equal(t, 1, under[errand], "an errand is in one call at a time")
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			calls--
			for errand := range of {
				under[errand]--
			}
		}
		var errands []*errand[int]
		for e := range 4 {
			values := make([]int, 250)
			for i := range values {
				values[i] = 1000*e + i
			}
			errands = append(errands, g.addAll(values...))
		}
		for _, e := range errands {
			g.wait(t.Context(), e)
		}
		crew.Wait(t.Context())
		assert.Len(t, order, 250)
		assert.IsIncreasing(t, order)
		assert.LessOrEqual(t, most, 2)
		assert.Zero(t, g.running)
	})
}

func TestACallThatIsFullDoesNotWaitForTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crew crew
		release, sizes := make(chan struct{}), make(chan int, 10)
		g := gatherer[int]{crew: &crew, ahead: true, weight: func(*int) int { return 1 }, send: func(batch []*entry[int]) {
			sizes <- len(batch)
			<-release
		}}
		g.add(0)
		synctest.Wait()
		g.addAll(make([]int, maxBatch-1)...)
		synctest.Wait()
		assert.Len(t, sizes, 1, "one that is not full waits for company")
		last := g.add(1)
		synctest.Wait()
		assert.Len(t, sizes, 2)
		g.addAll(make([]int, 2*maxBatch)...)
		synctest.Wait()
		assert.Len(t, sizes, 2, "no third one")
		close(release)
		_, err := last.settled(t.Context())
		require.NoError(t, err)
		crew.Wait(t.Context())
		close(sizes)
		var all []int
		for n := range sizes {
			all = append(all, n)
		}
		assert.Equal(t, []int{1, maxBatch, maxBatch, maxBatch}, all)
	})
}
