package rscheduler

import "github.com/redlatch/redlatch/internal/core"

// keys are the names of a scheduler's keys, all in one slot, with those of its queue that scripts look at.
type keys struct {
	jobs, paused, pauses, marks, seen, running, spans, left, late, last, alive, meta string

	runs, removed  string // prefixes, of the lists of results and of what has removed a job
	bodies, claims string
}

func keysOf(name, bodies, claims string) keys {
	base := core.Prefixed("redlatch_sched", name) + ":"
	return keys{
		jobs: base + "jobs", paused: base + "paused", pauses: base + "pauses", marks: base + "marks", seen: base + "seen",
		running: base + "running", spans: base + "spans", left: base + "left", late: base + "late", last: base + "last", alive: base + "alive", meta: base + "meta",
		runs: base + "runs:", removed: base + "removed:", bodies: bodies, claims: claims,
	}
}
