package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rscheduler"
)

const (
	wrongMost = 20 // things that are listed
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
func queueTroubles(of inspect.Object, s rexecutor.Stats) (all []trouble) {
	add := func(w weight, what, state, text string, at time.Time) {
		all = append(all, trouble{w, what, of.Kind, of.Name, queueAddress(of, "state", state), text, at, ""})
	}
	for _, text := range inspect.Orphans(s) {
		add(bad, "orphaned", "ready", text, time.Time{})
	}
	due, since := fmt.Sprintf("%d ready, the first was due ", s.Ready), time.Now().Add(-s.Oldest)
	switch {
	case s.Ready > 0 && s.Paused:
		add(attention, "paused", "ready", due, since)
	case s.Ready > 0 && s.Oldest >= inspect.Lags:
		add(bad, "lags", "ready", due, since)
	}
	if s.Dead > 0 {
		what := "dead letters"
		if of.Kind == kinds.Executor {
			what = "dead tasks"
		}
		add(bad, what, "dead", counted(of.Kind, s.Dead), time.Time{})
	}
	return all
}

// counted says how many messages of a queue, or tasks of an executor, there are.
func counted(kind string, n int) string {
	if kind == kinds.Executor {
		return inspect.N(n, "task", "tasks")
	}
	return inspect.N(n, "message", "messages")
}

// jobTroubles returns what is wrong with the jobs of a scheduler.
func jobTroubles(name string, jobs []rscheduler.Job) (all []trouble) {
	for _, j := range jobs {
		add := func(w weight, what, text string, at time.Time, rest string) {
			all = append(all, trouble{w, what, kinds.Scheduler, name, jobAddress(name, j.Name), "job " + j.Name + text, at, rest})
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

// sorted puts the worst first.
func sorted(all []trouble) []trouble {
	slices.SortStableFunc(all, func(a, b trouble) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.What, b.What), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}
