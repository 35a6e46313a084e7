package timer_test

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/timer"
)

// model is what a wheel should do, as a list sorted by time.
type model struct {
	waiting []entry
	fired   map[*timer.Timer]int
}

type entry struct {
	timer *timer.Timer
	at    time.Duration
}

func (m *model) set(t *timer.Timer, at time.Duration) {
	m.stop(t)
	i, _ := slices.BinarySearchFunc(m.waiting, at, func(e entry, at time.Duration) int { return int(e.at - at) })
	m.waiting = slices.Insert(m.waiting, i, entry{t, at})
}

func (m *model) stop(t *timer.Timer) bool {
	before := len(m.waiting)
	m.waiting = slices.DeleteFunc(m.waiting, func(e entry) bool { return e.timer == t })
	return len(m.waiting) < before
}

func (m *model) advance(now time.Duration) {
	for len(m.waiting) > 0 && m.waiting[0].at <= now.Truncate(time.Millisecond) {
		m.fired[m.waiting[0].timer]++
		m.waiting = m.waiting[1:]
	}
}

// bed is a wheel on the bubble's clock plus the jumps made so far.
type bed struct {
	*timer.Wheel
	start time.Time
	jumps atomic.Int64
	reads atomic.Int64
}

func newBed(t *testing.T, fire func(b *bed, due []*timer.Timer)) *bed {
	b := &bed{start: time.Now()}
	b.Wheel = timer.NewBatched(func() time.Duration {
		b.reads.Add(1)
		return b.now()
	}, func(due []*timer.Timer) { fire(b, due) })
	t.Cleanup(b.Close)
	return b
}

func (b *bed) now() time.Duration { return time.Since(b.start) + time.Duration(b.jumps.Load()) }

// span draws a duration whose magnitude, from a microsecond to max, is random too.
func span(rng *rand.Rand, most time.Duration) time.Duration {
	scale := time.Microsecond
	for scale < most && rng.IntN(8) > 0 {
		scale *= 4
	}
	return time.Duration(rng.Int64N(int64(min(scale, most)) + 1))
}

// onEdge moves every other time to where a coarse slot begins, and with it a fine one.
func onEdge(rng *rand.Rand, at time.Duration) time.Duration {
	if rng.IntN(2) == 0 {
		return at
	}
	return at.Round(time.Millisecond << (8 * rng.IntN(3)))
}

func TestWheelDoesWhatASortedListDoes(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) { runModel(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func runModel(t *testing.T, rng *rand.Rand) {
	fired := map[*timer.Timer]int{}
	b := newBed(t, func(_ *bed, due []*timer.Timer) {
		for _, d := range due {
			fired[d]++
		}
	})
	m := &model{fired: map[*timer.Timer]int{}}
	timers := make([]timer.Timer, 200)

	for step := range 1500 {
		one := &timers[rng.IntN(len(timers))]
		switch op := rng.IntN(20); {
		case op < 11:
			at := onEdge(rng, b.now()+span(rng, 100*24*time.Hour)-span(rng, time.Second))
			b.Set(one, at)
			m.set(one, at)
		case op < 15:
			require.Equal(t, m.stop(one), b.Stop(one), "step %d", step)
		case op < 19:
			time.Sleep(span(rng, 2*time.Minute))
		default:
			b.jumps.Add(int64(span(rng, 60*24*time.Hour)))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		m.advance(b.now())
		// Len comes last: its mutex orders the reading of fired before the next fire.
		require.Equal(t, m.fired, fired, "step %d at %v", step, b.now())
		require.Equal(t, len(m.waiting), b.Len(), "step %d at %v", step, b.now())
	}
}
