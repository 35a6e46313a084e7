package console

import (
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const timelineWide = 320 // of a drawn timeline

// timeline is what has happened to a message, and what comes next. It has no steps if nothing has happened yet that is known.
type timeline struct {
	Before int // attempts that are not kept: older ones, and those whose end nobody has noted
	Steps  []step
	Text   string // of the drawing
	Bars   []hourBars
	Now    int // its place in the drawing; negative if that ends before
}

// step is something that has happened, or will.
type step struct {
	What   string // attempt, running, or what happens at that time
	At     time.Time
	Took   time.Duration // of an attempt; negative if it did not end
	Client string
	Err    string
	After  time.Duration // since the step before; 0 of the first
}

// timelineOf returns the timeline of a message. hold is what a client says that has it in flight, and nil if none does.
func timelineOf(m inspect.Message, hold *inspect.Hold, now time.Time) (t timeline) {
	for _, a := range slices.Backward(m.History) {
		t.Steps = append(t.Steps, step{What: "attempt", At: a.Started, Took: a.Took, Client: a.Where, Err: a.Err})
	}
	t.Before = m.Attempt - len(m.History)
	if m.State == inspect.StateName(rdelayedqueue.InFlight) {
		t.Before--
		if hold != nil {
			t.Steps = append(t.Steps, step{What: "running", At: hold.Since, Client: hold.Client})
		}
	}
	if len(t.Steps) == 0 {
		return timeline{}
	}
	t.Steps = append(t.Steps, step{What: inspect.TimeName(m.State), At: m.DueAt})
	for i := range t.Steps[1:] {
		before := t.Steps[i]
		t.Steps[i+1].After = max(0, t.Steps[i+1].At.Sub(before.At)-max(0, before.Took))
	}
	t.draw(now)
	return t
}

// draw draws the steps, from the first one to the last one, or to now if that is later and the message lives.
func (t *timeline) draw(now time.Time) {
	first, last := t.Steps[0].At, t.Steps[len(t.Steps)-1]
	died := inspect.TimeName(inspect.StateName(rdelayedqueue.Dead))
	all := max(last.At.Sub(first), time.Millisecond)
	if last.What != died {
		all = max(all, now.Sub(first))
	}
	place := func(at time.Time) int {
		return int(float64(timelineWide-3) * float64(min(max(at.Sub(first), 0), all)) / float64(all))
	}
	attempts := 0
	for _, s := range t.Steps {
		what, x, wide := "plan", place(s.At), 3
		switch s.What {
		case "attempt":
			attempts++
			what, wide = "failed", max(wide, place(s.At.Add(s.Took))-x)
		case "running":
			what, wide = "running", max(wide, place(now)-x)
		case died:
			what = "dead"
		}
		t.Bars = append(t.Bars, hourBars{What: what, Shape: fmt.Sprintf("M%d 3h%dv10h-%dz", x, wide, wide)})
	}
	if t.Now = place(now); last.What == died {
		t.Now = -1
	}
	t.Text = fmt.Sprintf("%s in %s that failed or did not end; %s %s", inspect.N(attempts, "attempt", "attempts"), about(now.Sub(first)), last.What, relative(last.At.Sub(now)))
}
