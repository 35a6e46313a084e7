package historytest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

const (
	// WideSteps leaves the records of calls that are repeated, which Redis keeps for an hour: with them such a call would
	// take effect twice.
	WideSteps = 50 * time.Minute

	stepEvery = 250 * time.Millisecond
)

// step is a step of a server's clock that came between two times.
type step struct {
	from, to      int64
	before, after time.Duration
}

// Serve starts a server for the history. With Steps its clock steps at random, forth and back within that range, until
// [History.Calm]; the test is skipped where a server cannot have a clock of its own. Every other step, on average, goes beyond all
// before, so that no lease of some time keeps what it was for until the end.
func (h *History[E]) Serve(t *testing.T) *redistest.Server {
	t.Helper()
	if h.Steps == 0 {
		return redistest.Start(t)
	}
	server, clock := redistest.StartClock(t, 0)
	stop := make(chan struct{})
	var stepping sync.WaitGroup
	stepping.Go(func() {
		tick := time.NewTicker(stepEvery)
		defer tick.Stop()
		top := h.Steps / 2
		for ahead := time.Duration(0); ; {
			select {
			case <-stop:
				h.step(clock, ahead, h.Steps)
				return
			case <-tick.C:
				next := rand.N(top)
				if rand.N(2) == 0 {
					top = min(top+h.Steps/1000, h.Steps)
					next = top
				}
				h.step(clock, ahead, next)
				ahead = next
			}
		}
	})
	calm := sync.OnceFunc(func() {
		close(stop)
		stepping.Wait()
	})
	h.calm = append(h.calm, calm)
	t.Cleanup(calm)
	return server
}

// Calm ends the steps of all clocks with one to the end of the range: what is to come by the time of a server comes then
// as soon as if its clock had never stepped.
func (h *History[E]) Calm() {
	for _, calm := range h.calm {
		calm()
	}
}

func (h *History[E]) step(clock *redistest.Clock, before, after time.Duration) {
	from := h.Now()
	clock.Set(after)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, step{from, h.Now(), before, after})
}

// Excused returns the history with what steps ahead excuse: a hold that such a step met may be gone from then on, and a release
// that was repeated cannot tell. Ends returns of each hold that an event begins or ends an event that says that it is gone, if it
// was there.
func (h *History[E]) Excused(ends func(E) (gone []E, begins bool)) []Op[E] {
	ops := h.Ops()
	begun := map[any]int64{}
	for _, op := range ops {
		gone, begins := ends(op.Event)
		for _, one := range gone {
			if begins {
				begun[one] = op.Call
			}
		}
	}
	for i, op := range ops {
		gone, begins := ends(op.Event)
		if begins || len(gone) != 1 {
			continue
		}
		until := op.Back
		if until == Forever {
			until = op.Call
		}
		call, known := begun[gone[0]]
		if at, met := h.SteppedAhead(call, until); known && met {
			ops[i] = Op[E]{gone[0], min(max(at, call), op.Call), op.Back}
		}
	}
	return ops
}

// SteppedAhead returns the first time between two from which on the clock of a server may have stepped ahead.
func (h *History[E]) SteppedAhead(from, to int64) (at int64, stepped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.steps {
		if s.after > s.before && s.to >= from && s.from <= to {
			return s.from, true
		}
	}
	return 0, false
}

// ServerTime returns the earliest and the latest time that the clock of the only server may have shown between two times, and
// the highest that it may have shown by then.
func (h *History[E]) ServerTime(from, to int64) (earliest, latest, highest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	least, most := time.Duration(0), time.Duration(0)
	for _, s := range h.steps {
		switch {
		case s.to < from:
			least, most = s.after, s.after
		case s.from <= to:
			least, most = min(least, s.after), max(most, s.after)
		}
		if s.from <= to {
			highest = max(highest, min(s.to, to)+int64(s.before))
		}
	}
	latest = to
	if to != Forever {
		latest += int64(most)
	}
	return from + int64(least), latest, max(highest, latest)
}
