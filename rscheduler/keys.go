package rscheduler

import (
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/queue"
)

// keys are the names of a scheduler's keys, all in one slot, with those of the queue of its ticks.
type keys struct {
	base, meta, alive, left, jobs string

	job, runs, removed string // prefixes: of the jobs' hashes, of the lists of results, and of what has removed a job
	queue              queue.Places
}

func keysOf(name string, places queue.Places) keys {
	base := core.Prefixed("redlatch_sched", name) + ":"
	return keys{
		base: base, meta: base + "meta", alive: base + "alive", left: base + "left", jobs: base + "jobs", job: base + "job:", runs: base + "runs:",
		removed: base + "removed:", queue: places,
	}
}
