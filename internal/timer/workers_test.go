package timer_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWorkersAreBoundedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timer.NewWorkers(3)
		var mu sync.Mutex
		running, most, ran := 0, 0, 0
		for range 20 {
			w.Go(func() {
				mu.Lock()
				running++
				ran++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		time.Sleep(2500 * time.Millisecond)
		w.Close()
		assert.Equal(t, 3, most)
		assert.Equal(t, 9, ran, "what was queued is dropped")
		w.Go(func() { t.Error("a closed worker ran") })
	})
}
