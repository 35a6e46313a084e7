package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rscheduler"
)

func (a *app) sched() *cobra.Command {
	return a.group("sched", "Look at the jobs of a scheduler, and operate them", []string{kinds.Scheduler}, a.schedList(), a.schedRuns(),
		a.schedChange("trigger", "Run a job once now, beside its schedule, also if it is paused", (*rscheduler.Scheduler).Trigger),
		a.schedPause(),
		a.schedChange("resume", "Run a job by its schedule again", (*rscheduler.Scheduler).Resume),
		a.schedRemove())
}

// onScheduler runs a command on the scheduler that its first argument names.
func (a *app) onScheduler(do func(ctx context.Context, s *rscheduler.Scheduler, args []string) error) func(*cobra.Command, []string) error {
	return a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
		return do(ctx, c.GetScheduler(args[0]), args)
	})
}

// jobState is a job as it is printed.
type jobState struct{ rscheduler.Job }

// status says in a few words what a job does.
func (j jobState) status() string {
	var words []string
	if j.Paused {
		words = append(words, strings.TrimSuffix("paused: "+j.Why, ": "))
	}
	if j.Orphaned {
		words = append(words, "no process runs it")
	}
	if late := inspect.Late(j.Job); late > 0 {
		words = append(words, fmt.Sprintf("late by %v", late.Round(time.Second)))
	}
	if n := len(j.Running); n > 0 {
		words = append(words, fmt.Sprintf("running %d", n))
	}
	return strings.Join(words, ", ")
}

// last says how the last attempt has ended.
func (j jobState) last() string {
	switch {
	case j.Last.Started.IsZero():
		return "-"
	case j.Last.Err != "":
		return "failed " + at(j.Last.Started)
	}
	return "done " + at(j.Last.Started)
}

// at is a time as tables have it.
func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func (a *app) schedList() *cobra.Command {
	return &cobra.Command{
		Use: "ls NAME", Short: "List the jobs: when they run next, and how they went", Example: "  redlatch sched ls billing", Args: exactly(1),
		RunE: a.onScheduler(func(ctx context.Context, s *rscheduler.Scheduler, args []string) error {
			jobs, err := s.Jobs(ctx)
			if err != nil {
				return err
			}
			if len(jobs) == 0 {
				return &exit{exitFailed, fmt.Errorf("there is no scheduler %q: no process has run one", args[0])}
			}
			return a.print(jobs, func(w io.Writer) error { return writeJobs(w, jobs) })
		}),
	}
}

func writeJobs(w io.Writer, jobs []rscheduler.Job) error {
	err := row(w, "JOB", "SCHEDULE", "NEXT", "LAST", "STATE")
	for _, j := range jobs {
		state := jobState{j}
		err = errors.Join(err, row(w, j.Name, j.Schedule, at(j.Next), state.last(), state.status()))
	}
	return err
}

func (a *app) schedRuns() *cobra.Command {
	most := 0
	cmd := &cobra.Command{
		Use: "runs NAME JOB", Short: "List the last runs of a job, the newest first", Example: "  redlatch sched runs billing close-orders", Args: exactly(2),
		RunE: a.onScheduler(func(ctx context.Context, s *rscheduler.Scheduler, args []string) error {
			runs, err := s.Runs(ctx, args[1], most)
			if err != nil {
				return err
			}
			return a.list(runs, func(w io.Writer) error {
				err := row(w, "SCHEDULED", "STARTED", "TOOK", "ATTEMPT", "CLIENT", "RESULT")
				for _, r := range runs {
					result, _, _ := strings.Cut(r.Err, "\n")
					if result == "" {
						result = "done"
					}
					err = errors.Join(err, row(w, at(r.Scheduled), at(r.Started), r.Took, r.Attempt, r.Where, result))
				}
				return err
			})
		}),
	}
	cmd.Flags().IntVarP(&most, "count", "n", 20, "how many at the most; a scheduler keeps 20 unless its program says otherwise")
	return cmd
}

func (a *app) schedChange(verb, short string, do func(*rscheduler.Scheduler, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME JOB", Short: short, Example: "  redlatch sched " + verb + " billing close-orders", Args: exactly(2),
		RunE: a.onScheduler(func(ctx context.Context, s *rscheduler.Scheduler, args []string) error { return do(s, ctx, args[1]) }),
	}
}

func (a *app) schedPause() *cobra.Command {
	why := ""
	cmd := &cobra.Command{
		Use: "pause NAME JOB", Short: "Do not run a job by its schedule, until resume", Args: exactly(2),
		Long: `Do not run a job by its schedule, in any process, until resume. A run that goes on is not ended. What is due meanwhile is
left out.`,
		Example: "  redlatch sched pause billing close-orders --why 'the bank is down'",
		RunE: a.onScheduler(func(ctx context.Context, s *rscheduler.Scheduler, args []string) error {
			return s.Pause(ctx, args[1], why)
		}),
	}
	cmd.Flags().StringVar(&why, "why", "", "a reason, for those who list the jobs")
	return cmd
}

func (a *app) schedRemove() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "remove NAME JOB", Short: "Forget a job that no program has any more, and its runs",
		Example: "  redlatch sched remove billing close-orders", Args: exactly(2),
		Long: `Forget a job that no program has any more, and its runs. A process that has registered it writes it again within
10 seconds. If its schedule is a single run, that may run again then, as one that was missed.`,
		RunE: a.onScheduler(func(ctx context.Context, s *rscheduler.Scheduler, args []string) error {
			if err := a.confirm(ctx, yes, fmt.Sprintf("remove the job %q of %q?", args[1], args[0])); err != nil {
				return err
			}
			ok, err := s.Remove(ctx, args[1])
			if err == nil && !ok {
				err = &exit{exitFailed, fmt.Errorf("there is no job %q", args[1])}
			}
			return err
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}
