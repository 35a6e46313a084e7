package rscheduler

import (
	_ "embed"
	"encoding/json"
	"time"

	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed touch.lua
var touchSource string

//go:embed beat.lua
var beatSource string

//go:embed mark.lua
var markSource string

//go:embed paused.lua
var pausedSource string

//go:embed begin.lua
var beginSource string

//go:embed end.lua
var endSource string

//go:embed job.lua
var jobSource string

//go:embed jobs.lua
var jobsSource string

var (
	beatScript  = script.Embedded("rscheduler.beat", &touchSource, &beatSource)
	markScript  = script.Embedded("rscheduler.mark", &markSource)
	beginScript = script.Embedded("rscheduler.begin", &touchSource, &pausedSource, &beginSource)
	endScript   = script.Embedded("rscheduler.end", &queue.AcknowledgeSource, &endSource)
	jobScript   = script.Embedded("rscheduler.job", &jobSource)
	jobsScript  = script.Embedded("rscheduler.jobs", &jobsSource)
)

func (k *keys) beat(process string, length time.Duration, items []any) *script.Call {
	args := []any{k.jobs, k.marks, k.seen, k.alive, k.meta, k.bodies, process, length.Microseconds()}
	return beatScript.Call(6, append(args, items...)...)
}

func (k *keys) mark(items []any) *script.Call {
	return markScript.Call(2, append([]any{k.jobs, k.marks}, items...)...)
}

// beginning is a tick that was claimed, and the run that it is to begin.
type beginning struct {
	process string
	job     *job
	message *queue.Message
	tick    tick
	run     Run
	newer   int64         // the newest tick that was due then, µs, if it is not this one
	window  time.Duration // in which it may run late
	delay   time.Duration // of a fixed delay

	more          bool   // it is tried again if the schedule was replaced
	before, after string // ids of the ticks that run before and after it if it runs late
	older         string // id of the newest tick that was more than tooLate late then, if there is a newer one
}

// slot returns the field of the run in running.
func (b *beginning) slot() string {
	if b.job.options.overlap == Allow {
		return b.message.ID
	}
	return b.job.name
}

func (k *keys) begin(b *beginning) *script.Call {
	o, t := &b.job.options, &b.tick
	shown, _ := json.Marshal(b.run) // it has nothing that could fail
	return beginScript.Call(12, k.jobs, k.paused, k.pauses, k.marks, k.running, k.spans, k.left, k.late, k.alive, k.meta, k.bodies, k.claims,
		b.process, lifetime.Microseconds(), t.Job, b.slot(), b.message.ID, b.message.Claim(), string(t.Kind), t.Text, t.Instant,
		t.due(), b.run.Attempt, o.deaths(), o.overlap.String(), b.newer, b.window.Microseconds(), script.Flag(b.delay > 0), shown,
		b.before, script.Flag(b.more), dueOf(b.message).UnixMicro(), b.older)
}

// ending says how an attempt ends.
type ending string

const (
	ends    ending = "end"
	waits   ending = "wait"
	dropped ending = "drop"
)

func (k *keys) end(b *beginning, how ending, result []byte) *script.Call {
	o, window := &b.job.options, time.Duration(0)
	if o.overlap == Skip && b.delay == 0 {
		window = o.catchUp
	}
	ofQueue, member, keep := b.message.Acknowledgement()
	list := append([]any{k.running, k.spans, k.left, k.marks, k.last, k.runs + b.tick.Job, k.jobs}, ofQueue...)
	return endScript.Call(len(list), append(list, b.tick.Job, b.slot(), b.message.ID, b.message.Claim(), string(how), result, o.history,
		b.delay.Microseconds(), window.Microseconds(), b.tick.Instant, b.tick.Text, member, keep.Milliseconds())...)
}

func (k *keys) job(job, verb string, detail any) *script.Call {
	return jobScript.Call(12, k.runs+job, k.removed+job, k.jobs, k.seen, k.paused, k.pauses, k.marks, k.running, k.spans, k.left, k.late, k.last,
		job, verb, detail, lifetime.Microseconds())
}

func (k *keys) list(jobs, runs string) *script.Call {
	return jobsScript.Call(7, k.jobs, k.seen, k.paused, k.marks, k.running, k.last, k.claims, jobs, runs)
}
