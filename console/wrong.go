package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rscheduler"
)

const (
	wrongMost  = 20 // things that are listed, and queues that are asked for more
	errorsMost = 3  // errors of dead letters
	errorsOf   = 5  // queues of which the errors are asked for
	curvesMost = 3  // of them that are drawn over the last hour
)

// trouble is something that is wrong with an object.
type trouble struct {
	Weight  weight
	What    string // in a word or two
	Kind    string
	Name    string
	Address string // where more is said of it
	Text    string
	At      time.Time // follows Text, and Rest follows it; zero for none
	Rest    string
	Curves  []hourChart // of a queue that lags or grows
}

// weight is how bad something is.
type weight int

const (
	attention weight = iota // somebody has to look at it
	bad
)

// String is the class of its colour.
func (w weight) String() string {
	if w == bad {
		return "bad"
	}
	return "warn"
}

// queueTroubles returns what is wrong with a queue or an executor.
func queueTroubles(q queueLine) (all []trouble) {
	of, s, minutes := q.Object, q.Stats, q.minutes
	add := func(w weight, what, state, text string, at time.Time) {
		all = append(all, trouble{w, what, of.Kind, of.Name, queueAddress(of, "state", state), text, at, "", nil})
	}
	for _, text := range inspect.Orphans(s) {
		add(bad, "orphaned", "ready", text, time.Time{})
	}
	due, since := fmt.Sprintf("%d ready, the first was due ", s.Ready), time.Now().Add(-s.Oldest)
	if s.Ready == 0 {
		due, since = fmt.Sprintf("%d being retried", s.Failed), time.Time{}
	}
	growth := inspect.Growth(minutes, s.Stats)
	if growth > 0 {
		due = fmt.Sprintf("%d more came than went in the last %s; %s", growth, about(inspect.GrowthFor), due)
	}
	lags := s.Ready > 0 && s.Oldest >= inspect.Lags
	switch {
	case inspect.OnlyOrphansWait(s):
		last := &all[len(all)-1]
		last.Text, last.At = last.Text+"; the first of all was due ", since
	case s.Ready > 0 && s.Paused:
		add(attention, "paused", "ready", due, since)
	case lags && growth > 0:
		add(bad, "grows and lags", "ready", due, since)
	case lags:
		add(bad, "lags", "ready", due, since)
	case growth > 0:
		add(attention, "grows", "ready", due, since)
	}
	if minutes != nil && (lags || growth > 0) {
		all[len(all)-1].Curves = curvesOf(of.Kind, minutes, s.Oldest)
	}
	if s.Dead > 0 {
		what := "dead letters"
		if of.Kind == kinds.Executor {
			what = "dead tasks"
		}
		add(bad, what, "dead", counted(of.Kind, s.Dead)+errorsIn(q.newest), time.Time{})
	}
	return all
}

// errorsIn says by which errors most of some messages are dead.
func errorsIn(v inspect.Survey) (text string) {
	groups := inspect.Groups(v)
	if len(groups) == 0 {
		return ""
	}
	sep := ", "
	if v.More {
		sep = fmt.Sprintf(", of the newest %d: ", len(v.Messages))
	}
	for _, g := range first(groups, errorsMost) {
		text += fmt.Sprintf("%s%d × %s", sep, g.Dead, g.Line)
		sep = ", "
	}
	if more := len(groups) - errorsMost; more > 0 {
		text += ", and " + inspect.N(more, "other error", "other errors")
	}
	return text
}

// curvesOf returns what came and went in a queue in the last hour, and by how much it lagged.
func curvesOf(kind string, minutes []rdelayedqueue.Minute, oldest time.Duration) []hourChart {
	all := hourOf(kind, minutes, oldest)
	return []hourChart{all[0], all[2]}
}

// histories asks for the last hour of the queues in which most messages wait, and for the errors of those with most dead letters. It reports
// whether all queues were judged that may grow. Errors that do not come in time are left out.
func (h *handler) histories(ctx context.Context, all []queueLine) bool {
	ctx, cancel := context.WithTimeout(ctx, overviewFor)
	defer cancel()
	var asking sync.WaitGroup
	slices.SortStableFunc(all, func(a, b queueLine) int { return cmp.Compare(b.waits(), a.waits()) })
	for i := range first(all, wrongMost) {
		if q := &all[i]; q.waits() > 0 {
			asking.Go(func() { q.minutes, _ = inspect.MessagesOf(h.client, q.Object).Series(ctx) })
		}
	}
	asking.Wait()
	judged := !slices.ContainsFunc(all, func(q queueLine) bool { return q.minutes == nil && inspect.MayGrow(q.Stats.Stats) })
	slices.SortStableFunc(all, func(a, b queueLine) int { return cmp.Compare(b.Stats.Dead, a.Stats.Dead) })
	for i := range first(all, errorsOf) {
		if q := &all[i]; q.Stats.Dead > 0 {
			asking.Go(func() { q.newest, _ = inspect.MessagesOf(h.client, q.Object).Newest(ctx) })
		}
	}
	asking.Wait()
	return judged
}

// waits is how many messages are not handled as they come.
func (q *queueLine) waits() int { return q.Stats.Ready + q.Stats.Failed }

// drawnFirst leaves the curves of the first things that have any.
func drawnFirst(all []trouble) {
	left := curvesMost
	for i := range all {
		if left == 0 {
			all[i].Curves = nil
		}
		if all[i].Curves != nil {
			left--
		}
	}
}

// counted says how many messages of a queue, or tasks of an executor, there are.
func counted(kind string, n int) string { return inspect.N(n, noun(kind), noun(kind)+"s") }

// noun is what an object of a kind has.
func noun(kind string) string {
	if kind == kinds.Executor {
		return "task"
	}
	return "message"
}

// jobTroubles returns what is wrong with the jobs of a scheduler.
func jobTroubles(name string, jobs []rscheduler.Job) (all []trouble) {
	for _, j := range jobs {
		add := func(w weight, what, text string, at time.Time, rest string) {
			all = append(all, trouble{w, what, kinds.Scheduler, name, jobAddress(name, j.Name), "job " + j.Name + text, at, rest, nil})
		}
		if late := inspect.Late(j); late > 0 {
			add(bad, "late", ", was due ", time.Now().Add(-late), "")
		}
		if j.Orphaned {
			add(attention, "nobody runs it", "", time.Time{}, "")
		}
		if j.Last.Err != "" {
			add(attention, "failed", ", ", j.Last.Started, ": "+inspect.Line(j.Last.Err))
		}
	}
	return all
}

// order is the order of what is as bad, from the last one on; the rest comes after it.
var order = []string{"late", "orphaned", "dead tasks", "dead letters", "lags", "grows and lags"} //nolint:gochecknoglobals // a constant in all but name

// sorted puts the worst first.
func sorted(all []trouble) []trouble {
	slices.SortStableFunc(all, func(a, b trouble) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(slices.Index(order, b.What), slices.Index(order, a.What)), cmp.Compare(a.What, b.What), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}
