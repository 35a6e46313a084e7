package watchdog_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/watchdog"
	"github.com/redlatch/redlatch/internal/wheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subject wants to be renewed by its renewer whenever it is due.
type subject struct {
	timer   wheel.Timer
	renewer watchdog.Renewer
	slot    string
	due     int
}

func (s *subject) Due(time.Duration) watchdog.Renewer {
	s.due++
	return s.renewer
}

// renewer notes the sizes of its batches.
type renewer struct {
	mu      sync.Mutex
	batches map[string][]int
}

func (r *renewer) Renew(batch []watchdog.Subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := r.Slot(batch[0])
	for _, other := range batch {
		if r.Slot(other) != slot {
			slot = "mixed"
		}
	}
	r.batches[slot] = append(r.batches[slot], len(batch))
}

func (r *renewer) Slot(s watchdog.Subject) string { return s.(*subject).slot } //nolint:forcetypeassert // a test's own type

func TestWhatIsDueTogetherIsRenewedInBatchesOfASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		w := watchdog.New(c)
		defer w.Close()
		r := &renewer{batches: map[string][]int{}}
		for i := range 260 {
			s := &subject{renewer: r, slot: "a"}
			if i%26 == 0 {
				s.slot = "b"
			}
			s.timer.Owner = s
			w.Set(&s.timer, time.Second)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, map[string][]int{"a": {100, 100, 50}, "b": {10}}, r.batches)
	})
}

func TestSubjectThatNeedsNothingIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(clock.New())
		defer w.Close()
		s, stopped := &subject{}, &subject{}
		s.timer.Owner, stopped.timer.Owner = s, stopped
		w.Set(&s.timer, time.Second)
		w.Set(&stopped.timer, time.Second)
		assert.True(t, w.Stop(&stopped.timer))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, s.due)
		assert.Zero(t, stopped.due)
	})
}

func TestWorkersAreBoundedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.NewWorkers(3)
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
