package rscheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	horizon  = 3 * beatEvery // how far ahead ticks are offered; of each job at least the next one
	maxTicks = 10_000        // of a job in one beat
	maxJobs  = 200           // in one script call
)

// beats has Redis know that this process runs, and sees to it that all ticks are offered that come before the beat after the next one. So
// a process that dies takes none with it, and what Redis has lost is there again after the next beat.
func (r *runner) beats(ctx context.Context) {
	failing := false
	for {
		r.mu.Lock()
		kick := r.kick
		r.mu.Unlock()
		err := r.beat(ctx)
		pause := core.Jitter(beatEvery)
		switch {
		case errors.Is(err, errs.ErrClosed) || ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				r.core.Logger.Warn("redlatch: a scheduler cannot plan, and tries again", "kind", "rscheduler", "name", r.name, "cause", err)
			}
			pause = core.Jitter(beatAgain)
		}
		failing = err != nil
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-r.core.Closing():
			timer.Stop()
			return
		case <-kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// standing is what Redis has of a job.
type standing struct {
	job      *job
	text     string // of its schedule
	replaced string
	mark     string
	queued   bool // the tick of the mark is in the queue
}

func (r *runner) beat(ctx context.Context) error {
	r.mu.Lock()
	jobs := make([]*job, 0, len(r.jobs))
	for _, j := range r.jobs {
		jobs = append(jobs, j)
	}
	r.mu.Unlock()
	for first := true; first || len(jobs) > 0; first = false {
		n := min(len(jobs), maxJobs)
		if err := r.plan(ctx, jobs[:n]); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}

func (r *runner) plan(ctx context.Context, jobs []*job) error {
	var args []any
	for _, j := range jobs {
		args = append(args, j.name, j.text, number(!r.written[j.name]))
	}
	call, _, err := r.core.Query(ctx, func() *script.Call { return r.keys.beat(r.process, args) })
	if err != nil {
		return err
	}
	row := call.Row()
	now := time.UnixMicro(row.Int())
	all := make([]standing, len(jobs))
	for i, j := range jobs {
		all[i] = standing{job: j, text: row.Text(), replaced: row.Text(), mark: row.Text(), queued: row.Int() == 1}
	}
	if err := row.Err(); err != nil {
		return err
	}
	var items []queue.Item
	var marks []any
	for _, s := range all {
		name := s.job.name
		if s.replaced != "" {
			r.core.Logger.Warn("redlatch: the schedule of a job was changed", "kind", "rscheduler", "name", r.name, "job", name, "from", s.replaced, "to", s.text)
		}
		r.written[name] = true
		ticks, mark := s.ticks(now)
		for _, t := range ticks {
			items = append(items, t.item(tickID(name, t.Instant, "")))
		}
		marks = append(marks, mark...)
	}
	if err := r.offer(ctx, items); err != nil || len(marks) == 0 {
		return err
	}
	_, _, err = r.core.Query(ctx, func() *script.Call { return r.keys.mark(marks) })
	return err
}

// ticks returns what is to be offered of a job, and the mark after that as mark.lua takes it.
func (s *standing) ticks(now time.Time) (all []tick, mark []any) {
	schedule := s.job.scheduleOf(s.text)
	if schedule == nil {
		return nil, nil // those that have registered it see to it
	}
	add := func(t time.Time) {
		next := tick{Job: s.job.name, Instant: t.UnixMicro(), Text: s.text, Kind: regular}
		if jitter := s.job.options.jitter; jitter > 0 {
			next.Due = next.Instant + rand.Int64N(jitter.Microseconds()+1)
		}
		all = append(all, next)
	}
	marked, known := readMark(s.mark, s.text)
	if d, ok := schedule.(fixedDelay); ok {
		switch {
		case !known:
			marked = now.Add(d.delay)
			mark = s.marks(marked, true)
		case s.queued:
			return nil, nil
		}
		add(marked)
		return all, mark
	}
	if _, once := schedule.(oneShot); !known && once {
		marked = time.UnixMicro(0)
	} else if !known {
		marked = now
	}
	last, from := marked, now
	if marked.After(now) {
		from = marked
	} else {
		least := now.Add(-s.job.options.catchUp)
		if marked.After(least) {
			least = marked
		}
		all = s.job.options.missed(schedule, tick{Job: s.job.name, Text: s.text}, least, now)
		if len(all) > 0 {
			last = now
		}
	}
	for !from.After(now.Add(horizon)) && len(all) < maxTicks {
		next, ok := schedule.Next(from)
		if !ok || !next.After(from) {
			break
		}
		add(next)
		last, from = next, next
	}
	if known && last.Equal(marked) {
		return all, nil
	}
	return all, s.marks(last, false)
}

// marks returns a mark as mark.lua takes it.
func (s *standing) marks(last time.Time, keep bool) []any {
	return []any{s.job.name, s.text, last.UnixMicro(), number(keep)}
}

// readMark returns the last instant that was offered; false if the mark is of another schedule.
func readMark(mark, text string) (last time.Time, ok bool) {
	instant, of, _ := strings.Cut(mark, " ")
	n, err := strconv.ParseInt(instant, 10, 64)
	return time.UnixMicro(n), err == nil && of == text
}

// missed returns the ticks up to now, and after another time, that are to run although they were missed: those of a job whose runs may
// not overlap one by one, each when the last one has ended.
func (o *jobOptions) missed(s Schedule, t tick, after, now time.Time) (all []tick) {
	if o.catchUp == 0 {
		return nil
	}
	t.Kind = catchUp
	if !o.backfill {
		if at, ok := latest(s, after, now); ok {
			t.Instant = at.UnixMicro()
			all = append(all, t)
		}
		return all
	}
	for at, ok := s.Next(after); ok && !at.After(now) && at.After(after) && len(all) < maxTicks; at, ok = s.Next(after) {
		t.Instant, after = at.UnixMicro(), at
		if o.overlap != Allow {
			t.Until = now.UnixMicro()
			return []tick{t}
		}
		all = append(all, t)
	}
	return all
}
