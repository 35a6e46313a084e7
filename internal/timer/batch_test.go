package timer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/timer"
)

// member adds itself to a batch when it is due.
type member struct {
	timer timer.Timer
	batch *timer.Batch[*member]
}

func (m *member) Due(time.Duration) { m.batch.Add(m) }

func TestWhatIsDueTogetherIsDoneTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := timer.New(func() time.Duration { return time.Since(start) })
		defer w.Close()
		var done []int
		b := timer.NewBatch(w, func(due []*member) {
			if len(due) > 0 {
				done = append(done, len(due))
			}
		})
		for i := range 1300 {
			m := &member{batch: b}
			m.timer.Task = m
			w.Set(&m.timer, time.Duration(1+i/1200)*time.Second)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int{512, 512, 176, 100}, done)
	})
}
