package delayed

import (
	"context"
	"testing"
	"testing/synctest"

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
			_, err := g.wait(gone, g.add(i))
			require.ErrorIs(t, err, context.Canceled)
		}
		assert.LessOrEqual(t, len(g.queue), 2, "waiting, and at most as many given up")
		close(outage)
		for _, e := range []*entry[int]{first, kept} {
			_, err := g.wait(t.Context(), e)
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
		for _, add := range []func([]int) []*entry[int]{g.addAll, g.do} {
			for _, e := range add(make([]int, maxBatch+1)) {
				_, err := g.wait(t.Context(), e)
				require.NoError(t, err)
			}
			assert.Empty(t, add(nil))
		}
		crew.Wait(t.Context())
		assert.Equal(t, []int{maxBatch, 1, maxBatch, 1}, sizes)
	})
}
