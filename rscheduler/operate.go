package rscheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
)

// Job is a job as it stands in Redis.
type Job struct {
	// Name is the name of the job, and Schedule the text of its schedule.
	Name, Schedule string
	// Next is when it comes next, by its schedule, also while it is paused; zero if it does not come any more.
	Next time.Time
	// Paused reports whether it is paused, and Why what [Scheduler.Pause] was given.
	Paused bool
	Why    string
	// Orphaned reports whether no process that has registered it runs: 25 s after the last one died, or at once after it stopped.
	Orphaned bool
	// Late is for how long a run has been due that has not begun; 0 while one goes on or waits for another
	// attempt, the job is paused, or nobody runs it.
	Late time.Duration
	// Running has its runs that go on, sorted by Scheduled.
	Running []Run
	// Last is how its last attempt has ended; zero if none has.
	Last Result
}

// NextAfter returns when the job comes first after t, by its schedule. Of an [EveryAfter], and of a schedule of a program's own, no more
// than [Job.Next] is known. It returns false if there is no such time, or none is known. It does no I/O.
func (j Job) NextAfter(t time.Time) (time.Time, bool) {
	schedule := parseSchedule(j.Schedule)
	if _, fixed := schedule.(fixedDelay); fixed || schedule == nil {
		return j.Next, j.Next.After(t)
	}
	return nextOf(schedule, t)
}

// Jobs returns the jobs of all processes that share the name, by their names. It waits for Redis until ctx is done, or for the call
// timeout if ctx has no deadline (10 s by default, see redlatch.WithCallTimeout), and costs a round trip, and another for each hundred jobs.
// Those that come or go meanwhile may be left out. The other methods but Run and Trigger cost one; those that change something may have done so after
// redlatch.ErrUnknown, and may be repeated.
func (s *Scheduler) Jobs(ctx context.Context) ([]Job, error) {
	jobs, err := s.list(ctx)
	return jobs, s.wrap("list the jobs of", err)
}

func (s *Scheduler) list(ctx context.Context) ([]Job, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case ctx == nil:
		return nil, core.ErrNilContext
	}
	ctx, cancel := s.core.Bound(ctx)
	defer cancel()
	var jobs []Job
	for names, all := []string(nil), true; all || len(names) > 0; all = false {
		part := names[:min(len(names), maxJobs)]
		call, err := s.core.Read(ctx, func() *script.Call { return s.keys.list(all, part) })
		if err != nil {
			return nil, err
		}
		row := call.Row()
		now, err := s.keys.timeOf(row)
		if err != nil {
			return nil, err
		}
		names = append(names[len(part):], texts(row)...)
		alive := texts(row)
		for _, name := range part {
			fields := texts(row)
			if len(fields) == 0 {
				continue // it was removed
			}
			j, err := s.read(name, fields, alive, now)
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, j)
		}
		if err := row.Err(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	return jobs, nil
}

// texts reads a number, and as many texts as it says.
func texts(row *script.Row) (all []string) {
	for range row.Int() {
		all = append(all, row.Text())
	}
	return all
}

// read reads one job: the fields of its hash and their values, and the processes that run.
func (s *Scheduler) read(name string, fields, alive []string, now int64) (Job, error) {
	hash := map[string]string{}
	for pair := range slices.Chunk(fields, 2) {
		hash[pair[0]] = pair[1]
	}
	j := Job{Name: name, Schedule: hash["schedule"], Why: hash["paused"], Orphaned: true}
	_, j.Paused = hash["paused"]
	if due, err := strconv.ParseFloat(hash["due"], 64); err == nil && due < float64(now) && !j.Paused { // +Inf while it runs
		j.Late = time.Duration(now-int64(due)) * time.Microsecond
	}
	for _, process := range alive {
		if _, has := hash["on:"+process]; has {
			j.Orphaned = false
		}
	}
	if at := s.next(&j, instantOf(hash["next"]), now); at != never {
		j.Next = time.UnixMicro(at).UTC()
	}
	for field, state := range hash {
		if slot, of := strings.CutPrefix(field, "state@"); of && state == "running" {
			j.Running = append(j.Running, runIn(hash, name, "@"+slot))
		}
	}
	slices.SortFunc(j.Running, func(a, b Run) int { return a.Scheduled.Compare(b.Scheduled) })
	if last := hash["last"]; last != "" {
		if err := json.Unmarshal([]byte(last), &j.Last); err != nil {
			return j, fmt.Errorf("the last result of %q: %w", name, err)
		}
	}
	return j, nil
}

// runIn returns the run whose fields in the hash of its job end with slot.
func runIn(hash map[string]string, name, slot string) Run {
	t, _ := tickOf(name + slot)
	return Run{
		Job: name, Scheduled: time.UnixMicro(t.instant), Manual: t.manual, Where: hash["client"+slot], Token: instantOf(hash["token"+slot]),
		Started: time.UnixMicro(instantOf(hash["started"+slot])), Attempt: int(instantOf(hash["attempt"+slot])),
	}
}

// next returns when a job comes next.
func (s *Scheduler) next(j *Job, planned, now int64) int64 {
	schedule := parseSchedule(j.Schedule)
	if own := s.registered(j.Name); own != nil && own.text == j.Schedule {
		schedule = own.schedule
	}
	if _, fixed := schedule.(fixedDelay); fixed || schedule == nil && planned > now {
		return planned
	}
	return next(schedule, now)
}

// Runs returns how the last attempts of a job have ended, n at most and the newest first, as far as [WithHistory] keeps them. A job that
// does not exist is [ErrNotFound], and n below 1 redlatch.ErrInvalid.
func (s *Scheduler) Runs(ctx context.Context, job string, n int) ([]Result, error) {
	results, err := s.results(ctx, job, n)
	return results, s.wrap("list the runs of a job of", err)
}

func (s *Scheduler) results(ctx context.Context, job string, n int) ([]Result, error) {
	if n < 1 {
		return nil, invalid("%d runs are fewer than 1", n)
	}
	found, err := s.operate(ctx, job, "runs", n, "")
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(found.results))
	for i, text := range found.results {
		if err := json.Unmarshal([]byte(text), &results[i]); err != nil {
			return nil, fmt.Errorf("a result of %q: %w", job, err)
		}
	}
	return results, nil
}

// Trigger has a job run now, beside its schedule, also if it is paused: [Run.Manual] says so. If it runs just then, its [Overlap]
// says what becomes of it. A job that does not exist, or that no process has registered that runs or stopped less than 25 s ago, is [ErrNotFound]. It costs two round
// trips; one that is repeated after redlatch.ErrUnknown may have the job run twice.
func (s *Scheduler) Trigger(ctx context.Context, job string) error {
	return s.wrap("trigger a job of", s.trigger(ctx, job))
}

func (s *Scheduler) trigger(ctx context.Context, job string) error {
	found, err := s.operate(ctx, job, "look", 0, "")
	if err == nil && !found.had {
		err = fmt.Errorf("job %q %w: no process that runs has registered it", job, ErrNotFound)
	}
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s@%s%d-%s", job, manualMark, found.now, uuid.NewString())
	_, _, err = s.queue.Offer(ctx, []queue.Item{{ID: id, At: time.UnixMicro(found.now), Payload: []byte(text(found.now))}}, queue.Room{})
	return err
}

// Pause has a job not run any more by its schedule, in any process, until [Scheduler.Resume]. A run that goes on is not ended; one that
// waits for another attempt gets none. Ticks that are due meanwhile are left out, also if no process looks at them before Resume, and
// are not caught up with; nor does what is late run meanwhile, or a run whose process died. The reason is kept for [Job.Why]. A repeated Pause sets the
// reason anew. A job that does not exist is [ErrNotFound].
func (s *Scheduler) Pause(ctx context.Context, job, why string) error {
	if len(why) > maxText {
		return s.wrap("pause a job of", invalid("the reason has %d bytes, more than %d", len(why), maxText))
	}
	_, err := s.operate(ctx, job, "pause", why, "")
	return s.wrap("pause a job of", err)
}

// Resume ends a pause. One of a job that is not paused changes nothing, and of one that does not exist is [ErrNotFound].
func (s *Scheduler) Resume(ctx context.Context, job string) error {
	_, err := s.operate(ctx, job, "resume", "", "")
	return s.wrap("resume a job of", err)
}

// Remove removes a job with all that is kept of it, and reports whether there was one. A triggered run that has not begun is not kept, and
// may still run if a process registers the job again. Remove is for jobs that are orphaned: a process that
// has registered it, and runs, writes it again within 13 s, and runs it when the run that goes on has ended. An [At] that has run then runs again if [WithCatchUp] covers it.
func (s *Scheduler) Remove(ctx context.Context, job string) (bool, error) {
	_, err := s.operate(ctx, job, "remove", s.core.NextOwner(), "")
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, s.wrap("remove a job of", err)
}

// found is what job.lua says of a job.
type found struct {
	now     int64 // by Redis's clock, µs
	had     bool  // by a process that runs
	results []string
}

func (s *Scheduler) operate(ctx context.Context, job, verb string, detail any, member string) (f found, err error) {
	if s.err != nil {
		return f, s.err
	}
	if err := core.CheckText(job); err != nil {
		return f, fmt.Errorf("job: %w", err)
	}
	call := func() *script.Call { return s.keys.operate(job, verb, detail, member) }
	var done *script.Call
	if verb == "look" || verb == "runs" {
		done, err = s.core.Read(ctx, call)
	} else {
		done, _, err = s.core.Query(ctx, call)
	}
	if err != nil {
		return f, err
	}
	row := done.Row()
	if f.now, err = s.keys.timeOf(row); err != nil {
		return f, err
	}
	there := row.Int() == 1
	f.had = row.Int() == 1
	for row.More() {
		f.results = append(f.results, row.Text())
	}
	if err := row.Err(); err != nil {
		return found{}, err
	}
	if !there {
		return found{}, fmt.Errorf("job %q %w", job, ErrNotFound)
	}
	return f, nil
}
