package rscheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	horizon  = 3 * beatEvery // how far ahead ticks are offered; of each job at least the next one
	maxTicks = 10_000        // late ones of a job in one beat; all are twice as many at most
	maxJobs  = 100           // in one script call
	maxOffer = 100           // ticks in one, which a short call timeout bears
)

// beats has Redis know that this process runs, and sees to it that all ticks are offered that come before the beat after the next one. So
// a process that dies takes none with it, and what Redis has lost is there again after the next beat.
//
// Many jobs are planned in parts, spread over the time between two beats, so that no run waits for much planning. If some job is new, or
// a part has failed, all are planned at once. When serving is done, nothing more is offered.
func (r *runner) beats(ctx, serving context.Context) {
	for again := false; ; {
		parts, kick := r.parts()
		atOnce := again || r.hasNew(parts)
		began, gap := time.Now(), core.Jitter(beatEvery)/time.Duration(len(parts))
		var err error
		for i, part := range parts {
			due := began.Add(time.Duration(i+1) * gap)
			err = errors.Join(err, r.plan(ctx, serving, due, part))
			if unanswered(err) { // nor would be the others
				break
			}
			if !atOnce && err == nil && r.rest(ctx, time.Until(due), kick) {
				break
			}
		}
		if errors.Is(err, errs.ErrClosed) || ctx.Err() != nil || r.core.Closed() {
			return
		}
		if errors.Is(err, errs.ErrWrongType) {
			r.fail(err)
			return
		}
		r.plans.Note(r.core.Events, err, "redlatch: a scheduler cannot plan, and tries again", "redlatch: a scheduler plans again", kinds.Scheduler, r.name)
		again = err != nil
		switch {
		case again:
			r.rest(ctx, core.Jitter(beatAgain), kick)
		case atOnce:
			r.rest(ctx, gap, kick)
		}
	}
}

// parts returns the jobs in parts of maxJobs, sorted by name, and a channel that is closed when a job is registered.
func (r *runner) parts() (parts [][]*job, kick <-chan struct{}) {
	r.mu.Lock()
	jobs, kick := slices.Collect(maps.Values(r.jobs)), r.kick
	r.mu.Unlock()
	slices.SortFunc(jobs, func(a, b *job) int { return strings.Compare(a.name, b.name) })
	parts = slices.Collect(slices.Chunk(jobs, maxJobs))
	if len(parts) == 0 {
		parts = [][]*job{nil} // Redis has to know that this process runs
	}
	return parts, kick
}

// hasNew reports whether some job has not been written yet.
func (r *runner) hasNew(parts [][]*job) bool {
	for _, part := range parts {
		if slices.ContainsFunc(part, func(j *job) bool { return r.written[j.name] == "" }) {
			return true
		}
	}
	return false
}

// rest waits for d. It returns early, with true, if a job is registered, and with false if the scheduler or the client ends.
func (r *runner) rest(ctx context.Context, d time.Duration, kick <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.core.Closing():
	case <-timer.C:
	case <-kick:
		return true
	}
	return false
}

// standing is what Redis has of a job.
type standing struct {
	job      *job
	text     string // of its schedule
	replaced string
	mark     string
	queued   bool // the tick that its mark waits for is in the queue
	hasRun   bool // it is a single run that is among the results that are kept, though its mark is gone
}

func (r *runner) plan(ctx, serving context.Context, until time.Time, jobs []*job) error {
	var args []any
	for _, j := range jobs {
		last := r.written[j.name] // which may be that of another process
		text := cmp.Or(last, j.text)
		args = append(args, j.name, text, script.Flag(last == ""), j.first(text))
	}
	call, _, err := r.core.Query(ctx, func() *script.Call { return r.keys.beat(r.process, lifetime, args) })
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
	for _, s := range all {
		if s.replaced != "" {
			r.core.Logger.Warn("redlatch: the schedule of a job was changed", "kind", kinds.Scheduler, "name", r.name, "job", s.job.name, "from", s.replaced, "to", s.text)
		}
		r.written[s.job.name] = s.text
	}
	var failed error
	sound := all[:0]
	for _, s := range all {
		if s.mayHaveRun() {
			if unanswered(failed) { // nor would be this one
				continue
			}
			if s.hasRun, err = r.hasRun(ctx, s); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
		}
		sound = append(sound, s)
	}
	if err := r.advance(serving, now, until, sound); serving.Err() == nil {
		return errors.Join(failed, err)
	}
	return nil
}

// first returns how long after now the first mark of a schedule is, µs, or nothing: a single run that has passed may be missed.
func (j *job) first(text string) any {
	switch schedule := j.scheduleOf(text).(type) {
	case oneShot:
		return ""
	case fixedDelay:
		return schedule.delay.Microseconds()
	}
	return 0
}

// mayHaveRun reports whether it is a single run that may be among those that are kept though it has no mark, as after another schedule
// of the job.
func (s *standing) mayHaveRun() bool {
	if s.mark != "" || s.job.options.catchUp == 0 || s.job.options.history == 0 {
		return false
	}
	_, once := s.job.scheduleOf(s.text).(oneShot)
	return once
}

// hasRun reports whether a single run is among those that are kept. A result that cannot be read is passed over: it may be of any run.
func (r *runner) hasRun(ctx context.Context, s standing) (bool, error) {
	shot, _ := s.job.scheduleOf(s.text).(oneShot)
	found, err := r.operate(ctx, s.job.name, "runs", s.job.options.history)
	return slices.ContainsFunc(found.results, func(text string) bool {
		var run Result
		if err := json.Unmarshal([]byte(text), &run); err != nil {
			r.core.Logger.Warn("redlatch: a result cannot be read, and is passed over", "kind", kinds.Scheduler, "name", r.name, "job", s.job.name, "cause", err)
			return false
		}
		return !run.Manual && run.Scheduled.Equal(shot.at)
	}), err
}

// offer is a tick that is to be offered, and the mark of its job after that.
type offer struct {
	tick
	of    *standing
	after mark
}

// advance offers the next ticks of jobs, and moves their marks. A mark that names the tick which runs late next is moved before the tick
// is offered, as the end of its run moves the mark on. One that says how far ticks were offered is moved after that: if this process
// dies in between, they are offered again. What fails, or would be offered after the time, is left to the next heartbeat.
//
// A mark that another process has moved meanwhile is left to it. What is offered even so has the same ids as its offers: each runs once.
func (r *runner) advance(ctx context.Context, now, until time.Time, jobs []standing) error {
	var offers []offer
	var marks []any
	for i := range jobs {
		all, before := jobs[i].ticks(now)
		offers = append(offers, all...)
		marks = jobs[i].move(marks, before)
	}
	if err := r.mark(ctx, marks); err != nil {
		return err
	}
	slices.SortStableFunc(offers, func(a, b offer) int { // late ones hold up no others
		return cmp.Or(-strings.Compare(string(a.Kind), string(b.Kind)), cmp.Compare(a.Instant, b.Instant))
	})
	var failed, unconfirmed error
	reached := map[*standing]mark{}
	for some := range slices.Chunk(offers, maxOffer) {
		items := make([]queue.Item, len(some))
		for i, o := range some {
			items[i] = o.item(idOf(o.Job, o.Instant))
		}
		_, _, err := r.queue.Offer(ctx, items)
		if errors.Is(err, errs.ErrNotConfirmed) { // they are offered
			unconfirmed, err = err, nil
		}
		if failed = err; failed != nil {
			break
		}
		for _, o := range some {
			reached[o.of] = o.after
		}
		if time.Now().After(until) {
			break
		}
	}
	if len(reached) > 0 {
		r.confirms.Note(r.core.Events, unconfirmed, "redlatch: ticks are not confirmed", "redlatch: ticks are confirmed again", kinds.Scheduler, r.name)
	}
	marks = nil
	for s, m := range reached {
		marks = s.move(marks, m.write(s.text))
	}
	return errors.Join(failed, r.mark(ctx, marks))
}

// move adds the move of a mark to those for mark.lua.
func (s *standing) move(marks []any, to string) []any {
	if to != s.mark {
		marks = append(marks, s.job.name, s.text, s.mark, to)
		s.mark = to
	}
	return marks
}

func (r *runner) mark(ctx context.Context, marks []any) error {
	if len(marks) == 0 {
		return nil
	}
	_, _, err := r.core.Query(ctx, func() *script.Call { return r.keys.mark(marks) })
	return err
}

// ticks returns what is to be offered of a job, and its mark before that: the ticks from the mark on, up to the horizon. A tick in the
// past was missed: it is left out, or runs late. While ticks run late, the mark has the first and the last of those that have not.
func (s *standing) ticks(now time.Time) (all []offer, before string) {
	schedule, o := s.job.scheduleOf(s.text), &s.job.options
	if schedule == nil {
		return nil, s.mark // those that have registered it see to it
	}
	m, known := readMark(s.mark, s.text)
	add := func(instant int64, k kind) {
		next := tick{Job: s.job.name, Instant: instant, Text: s.text, Kind: k}
		if k == regular && o.jitter > 0 {
			next.Due = next.Instant + rand.Int64N(o.jitter.Microseconds()+1)
		}
		all = append(all, offer{next, s, m})
	}
	if d, fixed := schedule.(fixedDelay); fixed {
		if !known {
			m.last = now.Add(d.delay).UnixMicro()
		}
		if !s.queued {
			add(m.last, regular)
		}
		return all, m.write(s.text)
	}
	if _, once := schedule.(oneShot); !known && (!once || s.hasRun) {
		m.last = now.UnixMicro()
	}
	from := time.UnixMicro(m.last)
	if m.next == 0 && from.Before(now) {
		from = now
		if o.catchUp > 0 {
			m.next, m.until, s.queued = max(m.last+1, now.Add(-o.catchUp).UnixMicro()), now.UnixMicro(), false
		}
	}
	var late []int64
	if m.next != 0 && !s.queued {
		if late = o.late(schedule, time.UnixMicro(m.next), time.UnixMicro(m.until)); len(late) > 0 {
			m.last = from.UnixMicro()
		}
		if len(late) < 2 {
			m.moveTo(late, len(late))
		}
	}
	if before = s.mark; len(late) == 1 {
		before = m.write(s.text)
	}
	for !from.Before(now) && !from.After(now.Add(horizon)) && len(all) < maxTicks {
		next, ok := nextOf(schedule, from)
		if !ok || !next.After(from) {
			break
		}
		m.last, from = next.UnixMicro(), next
		add(m.last, regular)
	}
	for i, t := range late {
		m.moveTo(late, i+1)
		add(t, catchUp)
	}
	if len(all) == 0 {
		before = m.write(s.text)
	}
	return all, before
}

// mark is how far the ticks of a job were offered, µs.
type mark struct {
	last        int64 // of a fixed delay, the only one
	next, until int64 // 0, or those that run late one after another: the next one, and until when; what comes after last waits for them
}

// moveTo moves the mark behind the first n of the late ticks that are offered now. A single one stays in the mark: the end of its run
// takes it out. Behind as many as one heartbeat offers there may be more, for the next heartbeat; behind fewer there are none.
func (m *mark) moveTo(late []int64, n int) {
	switch {
	case len(late) == 1:
		m.next = late[0]
	case n < len(late) || n == maxTicks:
		m.next = late[n-1] + 1
	default:
		m.next = 0
	}
}

// readMark returns a mark; false if it is of another schedule.
func readMark(text, schedule string) (m mark, ok bool) {
	times, of, _ := strings.Cut(text, " ")
	n, _ := fmt.Sscanf(times, "%d,%d-%d", &m.last, &m.next, &m.until)
	if n == 0 || of != schedule {
		return mark{}, false
	}
	return m, true
}

func (m *mark) write(schedule string) string {
	if m.next == 0 {
		return fmt.Sprintf("%d %s", m.last, schedule)
	}
	return fmt.Sprintf("%d,%d-%d %s", m.last, m.next, m.until, schedule)
}

// late returns which of the ticks that were missed from one time until another are offered now: the newest one, or with a backfill the
// oldest ones. Those are maxTicks if the runs may overlap, and else one: the end of its run offers the next.
func (o *jobOptions) late(s Schedule, from, until time.Time) (all []int64) {
	from = from.Add(-1) // it may be one of them
	if !o.backfill {
		if t, ok := latest(s, from, until); ok {
			all = append(all, t.UnixMicro())
		}
		return all
	}
	most := maxTicks
	if o.overlap != Allow {
		most = 1
	}
	for t, ok := nextOf(s, from); ok && !t.After(until) && t.After(from) && len(all) < most; t, ok = nextOf(s, from) {
		all, from = append(all, t.UnixMicro()), t
	}
	return all
}
