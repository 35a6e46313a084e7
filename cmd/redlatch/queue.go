package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func (a *app) queue() *cobra.Command {
	return a.group("queue", "Look at a delayed queue, and operate it", []string{"rdelayedqueue"}, a.queueStats(), a.queueTail(), a.queueList(), a.queueGet(),
		a.queueCancel(), a.queueRedrive(), a.queuePurge(),
		a.queueSwitch("pause", "Deliver nothing until resume; what is in flight goes on", (*jobs).Pause),
		a.queueSwitch("resume", "Deliver again", (*jobs).Resume))
}

type jobs = inspect.Queue

func (a *app) jobs(ctx context.Context, name string) (*jobs, error) {
	c, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	return inspect.QueueOf(c, name), nil
}

// onQueue runs a command on the queue that its first argument names.
func (a *app) onQueue(do func(ctx context.Context, q *jobs, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		q, err := a.jobs(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return do(cmd.Context(), q, args)
	}
}

func (a *app) queueStats() *cobra.Command {
	return &cobra.Command{
		Use: "stats NAME", Short: "How many messages are in each state", Example: "  redlatch queue stats mails", Args: exactly(1),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			s, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) error {
				return errors.Join(row(w, "queue", args[0]), row(w, "delayed", s.Delayed), row(w, "ready", s.Ready),
					row(w, "in flight", s.InFlight), row(w, "dead", s.Dead), row(w, "paused", s.Paused))
			})
		}),
	}
}

func (a *app) queueTail() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "tail NAME", Short: "Print how many messages are in each state, each time that changes", Args: exactly(1),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, _ []string) error {
			return follow(ctx, every, q.Stats, func(s rdelayedqueue.Stats) error {
				return a.line(s, func() string { return inspect.Counts(s) })
			})
		}),
	}
	everyFlag(cmd, &every)
	return cmd
}

func stateOf(word string) (rdelayedqueue.State, error) {
	s, err := inspect.StateOf(word)
	if err != nil {
		err = &exit{exitUsage, err}
	}
	return s, err
}

// job is a message as it is printed.
type job inspect.Message

func shown(e rdelayedqueue.Entry[[]byte], payload bool) job {
	return job(inspect.MessageOf(e, payload))
}

func (j job) row(w io.Writer) error {
	cells := []any{j.ID, j.State, j.Attempt, j.DueAt.Format(time.RFC3339), j.Error}
	if j.Payload != nil {
		text, err := json.Marshal(j.Payload)
		if err != nil {
			return err
		}
		cells = append(cells, string(text))
	}
	return row(w, cells...)
}

func (a *app) queueList() *cobra.Command {
	state, most, payload := "", 0, false
	cmd := &cobra.Command{
		Use: "ls NAME", Short: "List messages, those that are due first", Args: exactly(1),
		Example: "  redlatch queue ls mails --state dead --payloads",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := stateOf(state)
			if err != nil {
				return err
			}
			if most < 1 {
				return &exit{exitUsage, errors.New("-n must be 1 or more")}
			}
			q, err := a.jobs(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			entries, _, err := q.List(cmd.Context(), s, "", most)
			if err != nil {
				return err
			}
			all := make([]job, len(entries))
			for i, e := range entries {
				all[i] = shown(e, payload)
			}
			return a.print(all, func(w io.Writer) error {
				err := row(w, "ID", "STATE", "ATTEMPT", "DUE", "ERROR")
				for _, j := range all {
					err = errors.Join(err, j.row(w))
				}
				return err
			})
		},
	}
	stateFlag(cmd, &state, "ready")
	cmd.Flags().IntVarP(&most, "count", "n", 100, "how many at the most")
	payloadFlag(cmd, &payload)
	return cmd
}

func stateFlag(cmd *cobra.Command, state *string, usual string) {
	cmd.Flags().StringVar(state, "state", usual, "delayed, ready, in-flight or dead")
	complete(cmd, "state", "delayed", "ready", "in-flight", "dead")
}

func payloadFlag(cmd *cobra.Command, payload *bool) {
	cmd.Flags().BoolVar(payload, "payloads", false, "print what the messages say, which may be private")
}

func (a *app) queueGet() *cobra.Command {
	payload := false
	cmd := &cobra.Command{
		Use: "get NAME ID", Short: "Print a message", Args: exactly(2),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			e, err := q.Get(ctx, args[1])
			if err != nil {
				return err
			}
			j := shown(*e, payload)
			return a.print(j, j.row)
		}),
	}
	payloadFlag(cmd, &payload)
	return cmd
}

func (a *app) queueCancel() *cobra.Command {
	return a.queueChange("cancel NAME ID", "Delete a message that waits, or is a dead letter", 2,
		func(args []string) string { return fmt.Sprintf("delete the message %q of %q?", args[1], args[0]) },
		func(ctx context.Context, q *jobs, args []string) (int, error) {
			ok, err := q.Cancel(ctx, args[1])
			if err == nil && !ok {
				err = &exit{exitFailed, fmt.Errorf("%q is in flight, or not there", args[1])}
			}
			return 1, err
		})
}

func (a *app) queueRedrive() *cobra.Command {
	return &cobra.Command{
		Use: "redrive NAME [ID]", Short: "Have a dead letter, or all of them, delivered again, with their attempts counted anew",
		Args: checked(cobra.RangeArgs(1, 2)),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			if len(args) == 1 {
				n, err := q.RedriveAll(ctx)
				return errors.Join(a.changed(n), err)
			}
			ok, err := q.Redrive(ctx, args[1])
			switch {
			case err != nil:
				return err
			case !ok:
				return &exit{exitFailed, fmt.Errorf("%q is no dead letter", args[1])}
			}
			return a.changed(1)
		}),
	}
}

func (a *app) queuePurge() *cobra.Command {
	state := ""
	cmd := a.queueChange("purge NAME", "Delete all messages of a state", 1,
		func(args []string) string {
			return fmt.Sprintf("delete all messages of %q that are %s?", args[0], state)
		},
		func(ctx context.Context, q *jobs, _ []string) (int, error) {
			s, err := stateOf(state)
			if err != nil {
				return 0, err
			}
			return q.Purge(ctx, s)
		})
	stateFlag(cmd, &state, "dead")
	return cmd
}

// queueChange is a command that takes messages away, and asks before.
func (a *app) queueChange(use, short string, args int, question func(args []string) string,
	change func(ctx context.Context, q *jobs, args []string) (int, error),
) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: use, Short: short, Args: exactly(args),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			if err := a.confirm(yes, question(args)); err != nil {
				return err
			}
			n, err := change(ctx, q, args)
			if err != nil {
				return err
			}
			return a.changed(n)
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}

// changed says how many messages were changed.
func (a *app) changed(n int) error {
	if a.json {
		return a.print(struct{ Messages int }{n}, nil)
	}
	_, err := fmt.Fprintln(a.out, n, "messages")
	return err
}

func (a *app) queueSwitch(verb, short string, do func(*jobs, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: exactly(1),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, _ []string) error {
			return do(q, ctx)
		}),
	}
}
