// Package watchdog keeps alive what is leased in Redis, and tells what could not be kept.
//
// One timer wheel holds everything that has a time of its own. What is due at the same moment is renewed in batches;
// nothing here has a goroutine per lease, or waits for an answer.
package watchdog

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wheel"
)

const (
	batchSize  = 100 // leases in one script call: about a third of a millisecond of Redis's time
	maxWorkers = 4   // functions under way at a time
)

// Subject is something whose time runs out: a lease, a permit, a claim, a job that has to be tried again.
type Subject interface {
	// Due is called on the wheel's goroutine when the subject's timer has fired; it must return at once. The result
	// says how the subject is to be renewed now; nil for not at all.
	Due(now time.Duration) Renewer
}

// Renewer renews subjects of its own kind.
type Renewer interface {
	// Renew sends the renewal of at most 100 subjects that share a slot, and returns at once. Each subject is told later
	// what came of it.
	Renew(batch []Subject)
	// Slot returns a string that is equal for subjects which one call may renew together.
	Slot(Subject) string
}

// Watchdog watches the subjects of one client. It is safe for concurrent use.
type Watchdog struct {
	clock   *clock.Clock
	wheel   *wheel.Wheel
	workers *Workers
}

// New returns a watchdog. It starts its goroutines when they are first needed.
func New(c *clock.Clock) *Watchdog {
	w := &Watchdog{clock: c, workers: NewWorkers(maxWorkers)}
	w.wheel = wheel.New(c.Now, w.fire)
	return w
}

// Set has the owner of t, a Subject, hear of it at the given time of the client's clock.
func (w *Watchdog) Set(t *wheel.Timer, at time.Duration) { w.wheel.Set(t, at) }

// Stop takes back Set, and reports whether the timer was still set.
func (w *Watchdog) Stop(t *wheel.Timer) bool { return w.wheel.Stop(t) }

// Each calls fn for every subject whose timer is set. It is for shutdown.
func (w *Watchdog) Each(fn func(Subject)) {
	w.wheel.Each(func(t *wheel.Timer) bool {
		if subject, ok := t.Owner.(Subject); ok {
			fn(subject)
		}
		return true
	})
}

// Go runs fn on one of a few workers, soon. Close waits for it.
func (w *Watchdog) Go(fn func()) { w.workers.Go(fn) }

// Close ends the wheel and the workers, and waits for them. What is still set is forgotten.
func (w *Watchdog) Close() {
	w.wheel.Close()
	w.workers.Close()
}

// group is what one call can renew.
type group struct {
	renewer Renewer
	slot    string
}

func (w *Watchdog) fire(due []*wheel.Timer) {
	now := w.clock.Now()
	var batches map[group][]Subject
	for _, t := range due {
		subject, ok := t.Owner.(Subject)
		if !ok {
			continue
		}
		renewer := subject.Due(now)
		if renewer == nil {
			continue
		}
		if batches == nil {
			batches = make(map[group][]Subject)
		}
		g := group{renewer: renewer, slot: renewer.Slot(subject)}
		batch := append(batches[g], subject)
		if len(batch) == batchSize {
			renewer.Renew(batch)
			batch = nil
		}
		batches[g] = batch
	}
	for g, batch := range batches {
		if len(batch) > 0 {
			g.renewer.Renew(batch)
		}
	}
}
