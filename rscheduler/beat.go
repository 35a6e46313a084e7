package rscheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	maxJobs    = 100             // in one script call that reads
	maxWritten = 25              // in one that writes: others wait meanwhile
	overdue    = 5 * time.Second // after which a heartbeat looks for the tick of a job
	maxOverdue = 1000            // of which a heartbeat learns
	maxTries   = 3               // at jobs that others replace

	unseen = -1 // a change of definitions that this process has not seen
)

// definition is a job that is to be written.
type definition struct {
	job   *job
	text  string // of its schedule
	force bool   // it replaces another schedule
	first int64  // tick
	known string // the next tick of the schedule that it replaces; - if that is not known
}

// known is a job that this process has written, and the text of its schedule that Redis had then.
type known struct {
	job  *job
	text string
}

// beats has Redis know that this process runs, and that it has its jobs. A heartbeat sees to the jobs whose next tick is overdue. All are
// written again when a definition was changed or removed, and when Redis has lost its data or has not heard of this process for a while.
// When serving is done, no job is written any more.
func (r *runner) beats(ctx, serving context.Context) {
	for {
		r.mu.Lock()
		kick := r.kick
		r.mu.Unlock()
		err := r.beat(ctx, serving)
		if errors.Is(err, errs.ErrClosed) || ctx.Err() != nil || r.core.Closed() {
			return
		}
		if fatal(err) {
			r.fail(err)
			return
		}
		r.plans.Note(r.core.Events, err, "redlatch: a scheduler cannot plan, and tries again", "redlatch: a scheduler plans again", kinds.Scheduler, r.name)
		pause := beatEvery
		if err != nil {
			pause = beatAgain
		}
		r.rest(ctx, core.Jitter(pause), kick)
	}
}

// fatal reports whether an error does not pass by itself.
func fatal(err error) bool { return errors.Is(err, errs.ErrWrongType) || errors.Is(err, ErrLayout) }

// rest waits for d, or until a job is registered, replaced or unregistered, or the scheduler or the client ends.
func (r *runner) rest(ctx context.Context, d time.Duration, kick <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.core.Closing():
	case <-timer.C:
	case <-kick:
	}
}

func (r *runner) beat(ctx, serving context.Context) error {
	call, _, err := r.core.Query(ctx, func() *script.Call { return r.keys.beat(r.process, lifetime) })
	if err != nil {
		return err
	}
	row := call.Row()
	now, err := r.keys.timeOf(row)
	if err != nil {
		return err
	}
	changed := row.Int()
	lost := changed < r.changed                                           // by a failover
	all := changed != r.changed || now-r.beaten > lifetime.Microseconds() // others may have passed over its jobs then
	late := map[string]bool{}
	for row.More() {
		late[row.Text()] = true
	}
	if err := row.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	jobs := maps.Clone(r.jobs)
	r.mu.Unlock()
	var some []definition
	for name, j := range jobs {
		last := r.writtenOf(name)
		if all || last.job != j || late[name] {
			d := definition{job: j, text: last.text, force: last.job != j || lost && last.text == j.text, known: "-"} // the text may be that of another process
			if d.force || j.scheduleOf(d.text) == nil {
				d.text = j.text
			}
			d.first = first(j.scheduleOf(d.text), now)
			some = append(some, d)
		}
	}
	slices.SortFunc(some, func(a, b definition) int { return strings.Compare(a.job.name, b.job.name) })
	for part := range slices.Chunk(some, maxWritten) {
		if serving.Err() != nil {
			return nil
		}
		after, failed := r.register(ctx, now, changed, part)
		if failed != nil {
			err = errors.Join(err, failed)
			if unanswered(failed) { // nor would be the others
				break
			}
		}
		changed = after
	}
	r.writing.Lock()
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(r.written)), func(name string) bool { return jobs[name] != nil })
	r.writing.Unlock()
	for _, name := range gone {
		if err == nil {
			err = r.leave(ctx, name)
		}
	}
	if err == nil {
		r.changed, r.beaten = changed, now
	}
	return err
}

// leave has Redis know that this process does not have a job any more.
func (r *runner) leave(ctx context.Context, name string) error {
	_, err := r.operate(ctx, name, "leave", r.process, "")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	delete(r.written, name)
	return nil
}

// writtenOf returns what this process has written of a job.
func (r *runner) writtenOf(name string) known {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.written[name]
}

// register writes jobs, and has their next ticks put into the queue. One whose first tick depends on the next one so far, as its
// schedule replaces another, takes a second call. It returns when a definition was changed last, if since then none was by anybody else.
func (r *runner) register(ctx context.Context, now, changed int64, items []definition) (int64, error) {
	for range maxTries { // others may replace it beside
		call, _, err := r.core.Query(ctx, func() *script.Call { return r.keys.register(r.process, items) })
		if err != nil {
			return unseen, err
		}
		r.noteConfirmed(call)
		row := call.Row()
		var again []definition
		for _, d := range items {
			have, how, replaced, before, done := row.Text(), row.Text(), row.Text(), row.Text(), row.Text()
			switch how {
			case "again":
				again = append(again, d.instead(before, done, now))
				continue
			case "replaced":
				r.core.Logger.Warn("redlatch: the schedule of a job was changed", "kind", kinds.Scheduler, "name", r.name, "job", d.job.name, "from", replaced, "to", have)
			}
			r.writing.Lock()
			r.written[d.job.name] = known{d.job, have}
			r.writing.Unlock()
		}
		if before, after := row.Int(), row.Int(); before == changed {
			changed = after
		} else {
			changed = unseen
		}
		if err := row.Err(); err != nil || len(again) == 0 {
			return changed, err
		}
		items = again
	}
	return unseen, nil
}

// instead returns the definition with its first tick if it replaces a schedule whose next tick is known, and which has decided others.
func (d definition) instead(before, done string, now int64) definition {
	d.known = before
	s := d.job.scheduleOf(d.text)
	old, newest := instantOf(before), instantOf(done)
	switch {
	case old != never && old <= now:
		d.first = first(s, old-1)
	case before == text(unknown):
		d.first = d.job.options.follows(s, newest, now)
	}
	if d.first != never && d.first <= newest { // it has run, or others have after it
		d.first = next(s, now)
	}
	if _, fixed := s.(fixedDelay); fixed {
		d.first = next(s, now)
	}
	return d
}

func (r *runner) noteConfirmed(call *script.Call) {
	r.confirms.Note(r.core.Events, call.Unconfirmed, "redlatch: ticks are not confirmed", "redlatch: ticks are confirmed again", kinds.Scheduler, r.name)
}
