package console

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rscheduler"
)

const (
	stripUnit  = 6 * time.Minute // of a strip, which is drawn in pixels
	stripPast  = 80              // units before now
	stripAhead = 240
	stripsMost = 50 // jobs that have one

	startLate = time.Minute // a run that begins later than that is late; how much later it may be by its jitter is not known here
)

// schedulerPage is the page of a scheduler, with the last runs of a job.
type schedulerPage struct {
	Name       string
	Jobs       []rscheduler.Job
	Strips     []strip
	MoreStrips int    // jobs that have none
	Job        string // whose runs are shown; "" for none
	Runs       []rscheduler.Result
}

func (h *handler) scheduler(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	s := h.client.GetScheduler(name)
	p := &schedulerPage{Name: name, Job: r.query.Get("job")}
	if p.Jobs, err = s.Jobs(r.ctx); err != nil {
		return nil, err
	}
	if p.Job != "" {
		p.Runs, err = s.Runs(r.ctx, p.Job, pageSize)
		if errors.Is(err, rscheduler.ErrNotFound) {
			return nil, fmt.Errorf("%w: the job %q of %q", errAbsent, p.Job, name)
		}
		if err != nil {
			return nil, err
		}
	}
	r.begin()
	for _, j := range first(p.Jobs, stripsMost) {
		runs, err := s.Runs(r.ctx, j.Name, pageSize)
		if err != nil && !errors.Is(err, rscheduler.ErrNotFound) { // it was removed meanwhile
			return nil, err
		}
		p.Strips = append(p.Strips, stripOf(j, runs, time.Now()))
	}
	p.MoreStrips = len(p.Jobs) - len(p.Strips)
	return p, nil
}

func jobAddress(name, job string) string {
	return "scheduler?" + url.Values{"name": {name}, "job": {job}}.Encode()
}

// strip is a job drawn over time: how it went, and when it comes.
type strip struct {
	Job, Text string
	Paused    bool
	Plan      string // a path with the times to come
	Dots      []dot
}

// dot is a run on a strip.
type dot struct {
	What, Shape, Text string
}

// worst says which of two runs is drawn that are in one place.
var worst = map[string]int{"done": 1, "late": 2, "running": 3, "failed": 4} //nolint:gochecknoglobals // a constant in all but name

// stripOf draws a job as it is at a time.
func stripOf(j rscheduler.Job, runs []rscheduler.Result, now time.Time) strip {
	s := strip{Job: j.Name, Paused: j.Paused}
	var at [stripPast + 1]dot
	count := map[string]int{}
	mark := func(what string, t time.Time, text string) {
		x := stripPast - int(now.Sub(t)/stripUnit)
		if x < 0 || x > stripPast {
			return
		}
		count[what]++
		if worst[what] > worst[at[x].What] {
			at[x] = dot{what, shape(what, x, 8), what + " " + text}
		}
	}
	for _, r := range runs {
		text := relative(r.Started.Sub(now))
		if r.Err != "" {
			text += ": " + inspect.Line(r.Err)
		}
		mark(came(r), r.Started, text)
	}
	for _, r := range j.Running {
		mark("running", r.Started, "since "+about(now.Sub(r.Started)))
	}
	if late := inspect.Late(j); late > 0 {
		mark("late", now.Add(-late), "by "+about(late))
	}
	for _, d := range at {
		if d.What != "" {
			s.Dots = append(s.Dots, d)
		}
	}
	var times int
	s.Plan, times = plan(j, now)
	s.Text = fmt.Sprintf("%d done, %d failed, %d late, %d running; ", count["done"], count["failed"], count["late"], count["running"])
	switch {
	case j.Paused:
		s.Text += "paused"
	case times == 0:
		s.Text += "does not come in 24 hours"
	default:
		s.Text += "comes " + relative(j.Next.Sub(now))
	}
	return s
}

// plan draws when a job comes, in how many units of the strip.
func plan(j rscheduler.Job, now time.Time) (path string, times int) {
	var b strings.Builder
	begin, end := 0, 0 // of units beside each other
	draw := func() {
		if width := end - begin; width > 0 {
			fmt.Fprintf(&b, "M%d 4h%dv8h-%dz", stripPast+begin, width, width)
		}
	}
	for t, ok := j.NextAfter(now); ok && t.Before(now.Add(stripAhead*stripUnit)); times++ {
		x := int(t.Sub(now) / stripUnit)
		if x != end {
			draw()
			begin = x
		}
		end = x + 1
		t, ok = j.NextAfter(now.Add(time.Duration(end)*stripUnit - time.Microsecond))
	}
	draw()
	return b.String(), times
}

// came says what came of a run.
func came(r rscheduler.Result) string {
	switch {
	case r.Err != "":
		return "failed"
	case r.Started.Sub(r.Scheduled) >= startLate && r.Attempt <= 1:
		return "late"
	}
	return "done"
}

// shape draws a run at a place: each kind has a form of its own, for those who do not see its colour.
func shape(what string, x, y int) string {
	switch what {
	case "failed": // a diamond
		return fmt.Sprintf("M%d %dl5 5l-5 5l-5 -5z", x, y-5)
	case "late": // a triangle
		return fmt.Sprintf("M%d %dl5 9h-10z", x, y-5)
	}
	return fmt.Sprintf("M%d %da4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x-4, y) // a circle
}
