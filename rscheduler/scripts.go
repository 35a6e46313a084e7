package rscheduler

import (
	_ "embed"
	"encoding/json"
	"time"

	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed hash.lua
var hashSource string

//go:embed plan.lua
var planSource string

//go:embed beat.lua
var beatSource string

//go:embed register.lua
var registerSource string

//go:embed begin.lua
var beginSource string

//go:embed end.lua
var endSource string

//go:embed job.lua
var jobSource string

//go:embed list.lua
var listSource string

var (
	beatScript     = script.Embedded("rscheduler.beat", &hashSource, &beatSource)
	registerScript = script.Embedded("rscheduler.register", &hashSource, &queue.WakeSource, &queue.PlaceSource, &planSource, &registerSource)
	beginScript    = script.Embedded("rscheduler.begin", &hashSource, &queue.WakeSource, &queue.PlaceSource, &planSource, &beginSource)
	endScript      = script.Embedded("rscheduler.end", &hashSource, &queue.WakeSource, &queue.PlaceSource, &planSource, &endSource)
	jobScript      = script.Embedded("rscheduler.job", &hashSource, &queue.PlaceSource, &jobSource)
	listScript     = script.Embedded("rscheduler.list", &hashSource, &listSource)
)

func (k *keys) beat(process string, length time.Duration) *script.Call {
	return beatScript.Call(4, k.meta, k.alive, k.jobs, k.left, process, length.Microseconds(), overdue.Microseconds(), maxOverdue)
}

func (k *keys) register(process string, items []definition) *script.Call {
	q := &k.queue
	args := []any{k.meta, k.alive, k.jobs, q.Meta, q.Due, q.Bodies, q.Waiters, q.Claims, q.Errors}
	for _, d := range items {
		args = append(args, k.job+d.job.name)
	}
	list := len(args)
	args = append(args, process, q.Channel)
	for _, d := range items {
		o := &d.job.options
		args = append(args, d.job.name, d.text, script.Flag(d.force), text(d.first), o.later(), d.known)
	}
	call := registerScript.Call(list, args...)
	call.Confirms = true
	return call
}

// claimed is a tick that was claimed, and the run that it is to begin.
type claimed struct {
	tick
	job      *job
	message  *queue.Message
	schedule Schedule // that the job has as far as this process knows, and its text
	text     string
	run      Run
	free     int64         // until when ticks came that the run does not leave out, µs
	now      int64         // when Redis answered begin, µs
	began    time.Duration // the same by the client's clock
}

// slot returns what follows the names of the fields of the run.
func (c *claimed) slot() string { return c.message.ID[len(c.name):] }

// at returns the instant of a tick as scripts take it.
func (c *claimed) at() string {
	if c.manual {
		return ""
	}
	return text(c.instant)
}

func (k *keys) begin(c *claimed) *script.Call {
	o, q, m, overlap := &c.job.options, &k.queue, c.message, c.job.options.overlap
	place, after := c.plan(m.Token())
	if _, fixed := c.schedule.(fixedDelay); fixed && overlap == Allow {
		overlap = Skip
	}
	call := beginScript.Call(8, k.job+c.name, k.meta, k.jobs, q.Meta, q.Due, q.Bodies, q.Waiters, q.Claims,
		q.Channel, c.name, m.ID, c.slot(), m.Claim(), c.run.Where, c.at(), c.due, dueOf(m).UnixMicro(), m.Attempt, o.deaths(),
		overlap.String(), c.window().Microseconds(), script.Flag(place), o.late().Microseconds(), text(after), o.later(), lifetime.Microseconds(), c.text)
	call.Confirms = overlap == Allow
	return call
}

// ending says how an attempt ends.
type ending string

const (
	ends    ending = "end"
	waits   ending = "wait"
	dropped ending = "drop"
)

func (k *keys) end(c *claimed, how ending, result Result, next, second string) *script.Call {
	o, q := &c.job.options, &k.queue
	kept, _ := json.Marshal(result) // it has nothing that could fail
	call := endScript.Call(10, k.job+c.name, k.runs+c.name, k.jobs, q.Meta, q.Due, q.Bodies, q.Waiters, q.Claims, q.Errors, q.Flight,
		q.Channel, c.name, c.message.ID, c.slot(), c.message.Claim(), string(how), kept, o.history, c.at(), c.text, next, o.later(),
		c.message.Share(), second)
	call.Confirms = true
	return call
}

func (k *keys) operate(job, verb string, detail any, member string) *script.Call {
	q := &k.queue
	return jobScript.Call(12, k.job+job, k.meta, k.alive, k.jobs, k.runs+job, k.removed+job, q.Claims, q.Errors, q.Flight, q.Due, q.Bodies, k.left,
		job, verb, detail, member)
}

func (k *keys) list(names bool, jobs []string) *script.Call {
	args := []any{k.meta, k.alive, k.jobs, k.queue.Claims}
	for _, job := range jobs {
		args = append(args, k.job+job)
	}
	list := len(args)
	args = append(args, script.Flag(names))
	for _, job := range jobs {
		args = append(args, job)
	}
	return listScript.Call(list, args...)
}
