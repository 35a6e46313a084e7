// Package events is where what happens to a client goes: to its observers, to its log, and into the lists of its last losses and
// failovers.
package events

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Options are what is observed and logged.
type Options struct {
	Hooks     Hooks
	Logger    *slog.Logger
	Clock     *clock.Clock
	Node      func(key string) string // the address of the server that has a key
	SlowWait  time.Duration           // a call that waited as long is logged; 0 for none
	SlowHold  time.Duration           // a hold that lasted as long is; 0 for none
	CallSites bool                    // holds know where they were acquired
}

// Events takes the events of one client. It is safe for concurrent use.
type Events struct {
	Options
	losses    list[Loss]
	failovers list[Failover]
	outages   outages

	panicked    known // messages whose handler has panicked
	panicPlaces known // where handlers have
}

// New returns the events of a client to which nothing has happened.
func New(o Options) *Events {
	o.logSlow()
	return &Events{Options: o}
}

// Loss is something that the client held and has lost.
type Loss struct {
	Kind  string        `json:"kind"`
	Name  string        `json:"name"`
	Owner string        `json:"owner"`
	At    time.Time     `json:"at"`
	Held  time.Duration `json:"held"`
	Site  string        `json:"site,omitempty"`
	Cause string        `json:"cause"`
}

// Failover is a server that was found to have failed over or restarted.
type Failover struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
}

// Kept is how many losses, and how many failovers, are kept.
const Kept = 100

// list has the last events of a kind.
type list[E any] struct {
	mu    sync.Mutex // guards the rest
	last  []E        // the oldest first
	count int        // of all
}

func (l *list[E]) add(e E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == Kept {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, e)
	l.count++
}

// newest returns the last events, the newest first, and how many there were in all.
func (l *list[E]) newest() (last []E, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last = slices.Clone(l.last)
	slices.Reverse(last)
	return last, l.count
}

// Losses returns the last losses, the newest first, and how many there were in all.
func (e *Events) Losses() (last []Loss, count int) { return e.losses.newest() }

// Failovers returns the last failovers, the newest first.
func (e *Events) Failovers() []Failover {
	last, _ := e.failovers.newest()
	return last
}

// Lost records something that ended just now although nobody released it. The cause is the error for who held it.
func (e *Events) Lost(l Loss, cause error) {
	l.At = e.Clock.Time(e.Clock.Now())
	e.losses.add(l)
	e.HoldEnded(l.Kind, l.Name, l.Owner, l.Held, cause)
}

// LogLost logs a loss. The noun is what was lost.
func (e *Events) LogLost(noun string, l Loss, cause error) {
	attributes := []any{"kind", l.Kind, "name", l.Name, "owner", l.Owner, "cause", cause}
	if l.Site != "" {
		attributes = append(attributes, "site", l.Site)
	}
	e.Logger.Warn("redlatch: a "+noun+" was lost", attributes...)
}

// FailedOver records a server that has failed over or restarted, once all holds are verified.
func (e *Events) FailedOver(node string) {
	e.failovers.add(Failover{Node: node, At: e.Clock.Time(e.Clock.Now())})
	e.Logger.Warn("redlatch: Redis has failed over or restarted; all holds are verified", "node", node)
	if f := e.Hooks.FailedOver; f != nil {
		f(node)
	}
}

// DeadLetter records a message that has become one.
func (e *Events) DeadLetter(d DeadLetter) {
	noun, attributes := "message", []any{"kind", d.Kind, "name", d.Name, "id", d.ID}
	if d.Task != "" {
		noun, attributes = "task", append(attributes, "task", d.Task)
	}
	e.Logger.Warn("redlatch: a "+noun+" became a dead letter", append(attributes, "attempt", d.Attempt, "cause", d.Cause)...)
	if f := e.Hooks.DeadLetter; f != nil {
		f(context.Background(), d) //nolint:forbidigo // nobody's
	}
}

// logSlow adds the lines of a slow log to what is observed.
func (o *Options) logSlow() {
	if limit := o.SlowWait; limit > 0 {
		o.Hooks.AcquireEnd = join2(func(_ context.Context, e AcquireEnd) {
			if e.Waited < limit || errors.Is(e.Err, context.Canceled) {
				return
			}
			attributes := []any{"kind", e.Kind, "name", e.Name, "owner", e.Owner, "waited", e.Waited}
			if e.Err != nil {
				attributes = append(attributes, "cause", e.Err)
			}
			o.Logger.Warn("redlatch: a call waited long", attributes...)
		}, o.Hooks.AcquireEnd)
	}
	if limit := o.SlowHold; limit > 0 {
		o.Hooks.HoldEnd = join2(func(_ context.Context, e HoldEnd) {
			if e.Held >= limit && e.Err == nil { // a loss is logged anyway
				o.Logger.Warn("redlatch: a hold lasted long", "kind", e.Kind, "name", e.Name, "owner", e.Owner, "held", e.Held)
			}
		}, o.Hooks.HoldEnd)
	}
}
