package inspect

import (
	"fmt"
	"strings"

	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rexecutor"
)

// TasksMost is how many of an executor's tasks that are in flight, and how many dead ones, are counted by name.
const TasksMost = queue.CensusMost

// Orphans says which tasks of an executor wait although no worker handles them.
func Orphans(s rexecutor.Stats) (all []string) {
	for _, t := range s.Tasks {
		if t.Orphaned {
			all = append(all, fmt.Sprintf("no worker handles %q, of which %s", t.Name, N(t.Delayed+t.Ready, "task waits", "tasks wait")))
		}
	}
	return all
}

// OnlyOrphansWait reports whether all tasks that are due are those that no worker handles, which is why the executor lags, or grows.
func OnlyOrphansWait(s rexecutor.Stats) bool {
	orphaned := 0
	for _, t := range s.Tasks {
		if t.Orphaned {
			orphaned += t.Ready
		}
	}
	return orphaned > 0 && orphaned >= s.Ready && !s.Paused
}

// TaskCounts says in a few words how the tasks of a name are.
func TaskCounts(t rexecutor.TaskStats) string {
	text := fmt.Sprintf("%d delayed, %d ready, %d in flight, %d dead", t.Delayed, t.Ready, t.InFlight, t.Dead)
	if t.Orphaned {
		text += ", no worker handles it"
	}
	return text
}

// tasks says in a few words how an executor is.
func tasks(s rexecutor.Stats) string {
	text := Counts(s.Stats)
	var orphaned []string
	for _, t := range s.Tasks {
		if t.Orphaned {
			orphaned = append(orphaned, t.Name)
		}
	}
	if len(orphaned) > 0 {
		text += ", no worker handles " + AndMore(strings.Join(orphaned[:min(3, len(orphaned))], ", "), len(orphaned)-3)
	}
	return text
}
