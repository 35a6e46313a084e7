package rscheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	// Orphaned reports whether no process that has registered it has run for 25 s.
	Orphaned bool
	// Running has its runs that go on, sorted by Scheduled.
	Running []Run
	// Last is how its last attempt has ended; zero if none has.
	Last Result
}

// Jobs returns the jobs of all processes that share the name, by their names. It waits for Redis until ctx is done, or for the call
// timeout if ctx has no deadline (10 s by default, see redlatch.WithCallTimeout), and costs a round trip for each hundred jobs or runs.
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
	byName, runs := map[string]Job{}, map[int64]Run{}
	for here, there := "0", "0"; here != "" || there != ""; {
		call, err := s.core.Read(ctx, func() *script.Call { return s.keys.list(here, there) })
		if err != nil {
			return nil, err
		}
		row := call.Row()
		now := time.UnixMicro(row.Int())
		here, there = row.Text(), row.Text()
		for range row.Int() {
			j, err := s.read(row, now)
			if err != nil {
				return nil, err
			}
			byName[j.Name] = j
		}
		for row.More() {
			token, text := row.Int(), row.Text()
			var run Run
			if err := json.Unmarshal([]byte(text), &run); err != nil {
				return nil, fmt.Errorf("a run: %w", err)
			}
			run.Token = token
			runs[token] = run
		}
		if err := row.Err(); err != nil {
			return nil, err
		}
	}
	for _, run := range runs {
		if j, ok := byName[run.Job]; ok {
			j.Running = append(j.Running, run)
			byName[run.Job] = j
		}
	}
	jobs := make([]Job, 0, len(byName))
	for _, j := range byName {
		slices.SortFunc(j.Running, func(a, b Run) int { return a.Scheduled.Compare(b.Scheduled) })
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	return jobs, nil
}

// read reads one job of what jobs.lua returns.
func (s *Scheduler) read(row *script.Row, now time.Time) (j Job, err error) {
	j.Name, j.Schedule = row.Text(), row.Text()
	seen := time.UnixMicro(row.Int())
	j.Orphaned = now.Sub(seen) > lifetime
	j.Paused, j.Why = row.Int() == 1, row.Text()
	if next := s.next(&j, row.Text(), now); !next.IsZero() {
		j.Next = next.UTC()
	}
	if last := row.Text(); last != "" {
		if err := json.Unmarshal([]byte(last), &j.Last); err != nil {
			return j, fmt.Errorf("the last result of %q: %w", j.Name, err)
		}
	}
	return j, nil
}

// next returns when a job comes next.
func (s *Scheduler) next(j *Job, mark string, now time.Time) time.Time {
	m, known := readMark(mark, j.Schedule)
	last := time.UnixMicro(m.last)
	schedule := parseSchedule(j.Schedule)
	if own := s.registered(j.Name); own != nil && own.text == j.Schedule {
		schedule = own.schedule
	}
	_, fixed := schedule.(fixedDelay)
	switch {
	case fixed && known:
		return last
	case schedule != nil && !fixed:
		if t, ok := nextOf(schedule, now); ok {
			return t
		}
	case last.After(now): // of a schedule that this process cannot follow
		return last
	}
	return time.Time{}
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
	found, err := s.operate(ctx, job, "runs", n)
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
// says what becomes of it. A job that does not exist, or that no process which runs has registered, is [ErrNotFound]. It costs two round
// trips; one that is repeated after redlatch.ErrUnknown may have the job run twice.
func (s *Scheduler) Trigger(ctx context.Context, job string) error {
	return s.wrap("trigger a job of", s.trigger(ctx, job))
}

func (s *Scheduler) trigger(ctx context.Context, job string) error {
	found, err := s.operate(ctx, job, "look", 0)
	if err == nil && !found.had {
		err = fmt.Errorf("job %q %w: no process that runs has registered it", job, ErrNotFound)
	}
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	t := tick{Job: job, Instant: found.now.UnixMicro(), Kind: manually}
	_, _, err = s.queue.Offer(ctx, []queue.Item{t.item(job + "@" + id.String())})
	return err
}

// Pause has a job not run any more by its schedule, in any process, until [Scheduler.Resume]. A run that goes on is not ended; one that
// waits for another attempt gets none. Ticks that are due meanwhile are left out, also if no process looks at them before Resume, and
// are not caught up with; what would run late meanwhile is left out too. The reason is kept for [Job.Why]. A repeated Pause sets the
// reason anew. A job that does not exist is [ErrNotFound].
func (s *Scheduler) Pause(ctx context.Context, job, why string) error {
	if len(why) > maxText {
		return s.wrap("pause a job of", invalid("the reason has %d bytes, more than %d", len(why), maxText))
	}
	_, err := s.operate(ctx, job, "pause", why)
	return s.wrap("pause a job of", err)
}

// Resume ends a pause. One of a job that is not paused changes nothing, and of one that does not exist is [ErrNotFound].
func (s *Scheduler) Resume(ctx context.Context, job string) error {
	_, err := s.operate(ctx, job, "resume", "")
	return s.wrap("resume a job of", err)
}

// Remove removes a job with all that is kept of it, and reports whether there was one. It is for jobs that are orphaned: a process that
// has registered it, and runs, writes it again within 10 s. An [At] that has run then runs again if [WithCatchUp] covers it.
func (s *Scheduler) Remove(ctx context.Context, job string) (bool, error) {
	_, err := s.operate(ctx, job, "remove", s.core.NextOwner())
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, s.wrap("remove a job of", err)
}

// found is what job.lua says of a job.
type found struct {
	now     time.Time // by Redis's clock
	had     bool      // by a process that runs
	results []string
}

func (s *Scheduler) operate(ctx context.Context, job, verb string, detail any) (f found, err error) {
	if s.err != nil {
		return f, s.err
	}
	if err := core.CheckText(job); err != nil {
		return f, fmt.Errorf("job: %w", err)
	}
	call := func() *script.Call { return s.keys.job(job, verb, detail) }
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
	there := row.Int() == 1
	f = found{now: time.UnixMicro(row.Int()), had: row.Int() == 1}
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
