package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

func (a *app) queue() *cobra.Command {
	list := a.messages(kinds.Queue, "List messages, those that are due first", `List messages, those that are due first, with the first line of their last error, of which a terminal shows as much as
has room. get prints all of it.`, "  redlatch queue ls mails --state dead --payloads")
	return a.group("queue", "Look at a delayed queue, and operate it", []string{kinds.Queue}, a.queueStats(), a.queueErrors(), a.queueTail(), list, a.queueGet(),
		a.queueCancel(), a.queueRedrive(), a.queuePurge(),
		a.queuePause(), a.queueResume())
}

type jobs = inspect.Queue

func (a *app) jobs(ctx context.Context, name string) (*jobs, error) {
	c, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	return inspect.QueueOf(c, name), notAnExecutor(ctx, c, name)
}

// notAnExecutor returns an error if an executor has this name and no queue has it, of which a command would say that it is empty.
func notAnExecutor(ctx context.Context, c *redlatch.Client, name string) error {
	for _, kind := range []string{kinds.Queue, kinds.Executor} {
		s, err := inspect.MessagesOf(c, inspect.Object{Kind: kind, Name: name}).Stats(ctx)
		switch {
		case err != nil || isThere(s) && kind == kinds.Queue:
			return nil //nolint:nilerr // the command itself gets the error, if it is about its queue
		case isThere(s):
			return &exit{exitFailed, fmt.Errorf("there is no queue %q, but an executor, whose tasks are in the queue %q", name, core.Suffixed(name, queue.TasksSuffix))}
		}
	}
	return nil
}

// isThere reports whether these are the numbers of something that is there. An empty queue has none.
func isThere(s rexecutor.Stats) bool { return s.Stats != (rdelayedqueue.Stats{}) || len(s.Tasks) > 0 }

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
		Use: "stats NAME", Aliases: []string{"info"}, Short: "How many messages are in each state", Example: "  redlatch queue stats mails", Args: exactly(1),
		Long: `How many messages are in each state. "being retried" are those that are delayed, ready or in flight, and have had an
attempt that ended with an error, or whose claim ran out; other delayed ones are meant for later. After how many attempts a
message is dead is a setting of its consumer, rdelayedqueue.WithMaxAttempts, and not known here. "lag" is for how long the message has been
due that has been due longest, "oldest" in JSON. "group waits" is of how many groups a message waits for another one; "priority 9" and the like are the
messages with that priority that are delayed or ready.

Below are the numbers of this minute of Redis's clock, which has begun, and with it of the last ten, and of the last hour: messages that
were offered, and done, attempts that failed, messages that became dead, and how late a message was claimed at the most.`,
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			return a.numbers(ctx, inspect.MessagesOf(c, inspect.Object{Kind: kinds.Queue, Name: args[0]}))
		}),
	}
}

// numbers prints those of a queue or an executor.
func (a *app) numbers(ctx context.Context, q *inspect.Messages) error {
	n, err := numbersOf(ctx, q)
	if err == nil {
		err = a.thereIs(ctx, q.Object, n.Stats)
	}
	if err != nil {
		return err
	}
	var v any = n
	if q.Kind == kinds.Queue { // which has no tasks
		v = struct {
			rdelayedqueue.Stats
			lately
		}{n.Stats.Stats, n.lately}
	}
	return a.print(v, n.write)
}

// numbers are those of a queue or an executor.
type numbers struct {
	of inspect.Object
	rexecutor.Stats
	lately
}

// lately is what has happened since the beginning of a minute.
type lately struct{ ThisMinute, TenMinutes, LastHour rdelayedqueue.Minute }

func numbersOf(ctx context.Context, q *inspect.Messages) (numbers, error) {
	s, err := q.Stats(ctx)
	if err != nil {
		return numbers{}, err
	}
	all, err := q.Series(ctx)
	if err != nil {
		return numbers{}, err
	}
	return numbers{q.Object, s, lately{sum(all[len(all)-1:]), sum(all[len(all)-10:]), sum(all)}}, nil
}

// sum returns what happened in some minutes.
func sum(minutes []rdelayedqueue.Minute) rdelayedqueue.Minute {
	all := rdelayedqueue.Minute{Start: minutes[0].Start}
	for _, m := range minutes {
		all.Offered, all.Done, all.Failed, all.Dead = all.Offered+m.Offered, all.Done+m.Done, all.Failed+m.Failed, all.Dead+m.Dead
		all.Lateness = max(all.Lateness, m.Lateness)
	}
	return all
}

func (n numbers) write(w io.Writer) error {
	paused := strconv.FormatBool(n.Paused)
	if !n.PausedUntil.IsZero() {
		paused = "until " + n.PausedUntil.UTC().Format(time.RFC3339)
	}
	err := errors.Join(row(w, n.of.Kind, n.of.Name), row(w, "delayed", n.Delayed), row(w, "ready", n.Ready), row(w, "in flight", n.InFlight),
		row(w, "dead", n.Dead), row(w, "being retried", n.Failed), row(w, "paused", paused), row(w, "lag", n.Oldest),
		row(w, "group waits", n.Groups))
	for p, count := range slices.Backward(n.Priorities[:]) {
		if count > 0 {
			err = errors.Join(err, row(w, fmt.Sprintf("priority %d", p), count))
		}
	}
	for _, t := range n.Tasks {
		err = errors.Join(err, row(w, "task "+t.Name, inspect.TaskCounts(t)))
	}
	happened := func(when string, m rdelayedqueue.Minute) error {
		return row(w, when, m.Offered, m.Done, m.Failed, m.Dead, m.Lateness)
	}
	return errors.Join(err, row(w, "", "OFFERED", "DONE", "FAILED", "DEAD", "LATE"), happened("this minute", n.ThisMinute),
		happened("10 minutes", n.TenMinutes), happened("last hour", n.LastHour))
}

// stats returns how many messages there are. A queue or an executor that Redis does not have is an error.
func (a *app) stats(ctx context.Context, q *inspect.Messages) (rexecutor.Stats, error) {
	s, err := q.Stats(ctx)
	if err == nil {
		err = a.thereIs(ctx, q.Object, s)
	}
	return s, err
}

// thereIs returns an error if Redis does not have a queue or an executor of which this is known. Where the user may not look for it, it
// counts as there.
func (a *app) thereIs(ctx context.Context, o inspect.Object, s rexecutor.Stats) error {
	if isThere(s) {
		return nil
	}
	for _, err := range a.client.Objects(ctx, core.EscapePattern(o.Name), redlatch.WithKinds(o.Kind)) {
		if errors.Is(err, redlatch.ErrUnavailable) {
			return err
		}
		return nil //nolint:nilerr // as said above
	}
	if o.Kind == kinds.Queue {
		if err := notAnExecutor(ctx, a.client, o.Name); err != nil {
			return err
		}
	}
	return &exit{exitFailed, fmt.Errorf("there is no %s %q", o.Kind, o.Name)}
}

// errorCount is an error of a queue, and how many messages have it.
type errorCount struct {
	Error              string
	Dead, BeingRetried int
}

func (a *app) queueErrors() *cobra.Command {
	return &cobra.Command{
		Use: "errors NAME", Short: "The errors of a queue by their first line, and how many messages have each", Example: "  redlatch queue errors mails",
		Args: exactly(1),
		Long: `The errors of a queue by their first line, the most frequent first, and how many messages have each: dead ones, and those that
are being retried. It looks at up to 10,000 messages of each state, of dead letters at the newest, for as long as there is time.`,
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			q := inspect.MessagesOf(c, inspect.Object{Kind: kinds.Queue, Name: args[0]})
			s, err := a.stats(ctx, q)
			if err != nil {
				return err
			}
			var surveys []inspect.Survey
			for _, state := range inspect.States() {
				if state == rdelayedqueue.Dead && s.Dead == 0 || state != rdelayedqueue.Dead && s.Failed == 0 {
					continue
				}
				v, err := q.Survey(ctx, state)
				if err != nil {
					return err
				}
				if v.More {
					a.hint("of the messages that are %s only %d were looked at", inspect.StateName(state), len(v.Messages))
				}
				surveys = append(surveys, v)
			}
			all := []errorCount{} // none is a list too, in JSON
			for _, g := range inspect.Groups(surveys...) {
				all = append(all, errorCount{g.Line, g.Dead, g.Waiting})
			}
			return a.list(all, func(w io.Writer) error {
				err := row(w, "DEAD", "BEING RETRIED", "ERROR")
				for _, e := range all {
					err = errors.Join(err, row(w, e.Dead, e.BeingRetried, e.Error))
				}
				return err
			})
		}),
	}
}

func (a *app) queueTail() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "tail NAME", Short: "Print how many messages are in each state, each time that changes",
		Example: "  redlatch queue tail mails --every 200ms", Args: exactly(1),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, _ []string) error {
			var last rdelayedqueue.Stats
			look := func(ctx context.Context) (rdelayedqueue.Stats, error) {
				s, err := q.Stats(ctx)
				last, s.Oldest = s, 0 // which changes all the time
				return s, err
			}
			return follow(ctx, every, look, func(rdelayedqueue.Stats) error {
				return a.line(last, func() string { return inspect.Counts(last) })
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
		Long: `Print a message, with its last five attempts that failed.

With --payloads, MessagePack and JSON are printed as JSON, other text as it is, and other bytes in base64. A JSON
payload that is one digit is read as MessagePack, which it is too: 7 is printed as 55. Without it, only the names of headers are printed.`,
		Example: "  redlatch queue get mails 01a20e3c-4314-7d0b-80c6-22963ef0764d --payloads",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			return a.message(ctx, inspect.MessagesOf(c, inspect.Object{Kind: kinds.Queue, Name: args[0]}), args[1], payload)
		}),
	}
	payloadFlag(cmd, &payload)
	return cmd
}

func (a *app) queueCancel() *cobra.Command {
	yes, attempts, text := false, 0, ""
	cmd := &cobra.Command{
		Use: "cancel NAME [ID]", Short: "Delete a message, or those that fail", Args: checked(cobra.RangeArgs(1, 2)),
		Long: `Delete a message. If it is in flight, the context of its handler ends. Without an id: all that are delayed or ready,
have failed, and are those that --attempts and --error name. "get --json --payloads" prints a message before it is gone.`,
		Example: "  redlatch queue cancel mails 01a20e3c-4314-7d0b-80c6-22963ef0764d\n  redlatch queue cancel mails --attempts 5 --error 'nil map'",
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			if len(args) == 2 && (attempts != 0 || text != "") {
				return &exit{exitUsage, errors.New("an id and --attempts or --error exclude each other")}
			}
			if len(args) == 2 {
				if err := a.confirm(ctx, yes, fmt.Sprintf("delete the message %q of %q?", args[1], args[0])); err != nil {
					return err
				}
				return a.cancelOne(ctx, q, args[1])
			}
			if attempts < 1 {
				return &exit{exitUsage, errors.New("give an id, or --attempts of 1 or more")}
			}
			question := fmt.Sprintf("delete the messages of %q that have failed, with %s or more and an error that has %q?",
				args[0], inspect.N(attempts, "attempt", "attempts"), text)
			if err := a.confirm(ctx, yes, question); err != nil {
				return err
			}
			n, err := cancelFailed(ctx, q, attempts, text)
			return errors.Join(a.changed(n, "message", "messages"), err)
		}),
	}
	yesFlag(cmd, &yes)
	cmd.Flags().IntVar(&attempts, "attempts", 0, "all that have failed, and have had so many attempts or more")
	cmd.Flags().StringVar(&text, "error", "", "with --attempts: whose last error has this text in it")
	return cmd
}

func (a *app) cancelOne(ctx context.Context, q *jobs, id string) error {
	ok, err := q.Cancel(ctx, id)
	if err != nil {
		return err
	}
	if !ok {
		return &exit{exitFailed, fmt.Errorf("there is no message %q", id)}
	}
	return a.changed(1, "message", "messages")
}

// cancelFailed deletes messages that wait for another attempt.
func cancelFailed(ctx context.Context, q *jobs, attempts int, text string) (n int, err error) {
	for _, state := range []rdelayedqueue.State{rdelayedqueue.Delayed, rdelayedqueue.Ready} {
		for e, err := range q.All(ctx, state) {
			if err != nil {
				return n, err
			}
			if e.Error == "" || e.Attempt < attempts || !strings.Contains(e.Error, text) {
				continue
			}
			ok, err := q.Cancel(ctx, e.ID)
			if err != nil {
				return n, err
			}
			if ok {
				n++
			}
		}
	}
	return n, nil
}

func (a *app) queueRedrive() *cobra.Command {
	return &cobra.Command{
		Use: "redrive NAME [ID]", Short: "Deliver a dead letter again, or all of them; their attempts start over",
		Example: "  redlatch queue redrive mails\n  redlatch queue redrive mails 01a20e3c-4314-7d0b-80c6-22963ef0764d",
		Args:    checked(cobra.RangeArgs(1, 2)),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			return a.redrive(ctx, q, args[1:], "message", "dead letter")
		}),
	}
}

// redriver has dead letters, or dead tasks.
type redriver interface {
	Redrive(ctx context.Context, id string) (bool, error)
	RedriveAll(ctx context.Context) (int, error)
}

// redrive has those begun again whose ids are given, or all.
func (a *app) redrive(ctx context.Context, q redriver, ids []string, noun, dead string) error {
	if len(ids) == 0 {
		n, err := q.RedriveAll(ctx)
		if n == 0 && err == nil && !a.json {
			_, err = fmt.Fprintf(a.err, "There is no %s. A %s that failed and has attempts left is tried again by itself.\n", dead, noun)
		}
		return errors.Join(a.changed(n, noun, noun+"s"), err)
	}
	ok, err := q.Redrive(ctx, ids[0])
	switch {
	case err != nil:
		return err
	case !ok:
		return &exit{exitFailed, fmt.Errorf("%q is no %s", ids[0], dead)}
	}
	return a.changed(1, noun, noun+"s")
}

func (a *app) queuePurge() *cobra.Command {
	state, yes := "", false
	cmd := &cobra.Command{
		Use: "purge NAME", Short: "Delete all messages of a state", Example: "  redlatch queue purge mails --state dead", Args: exactly(1),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			s, err := stateOf(state)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, fmt.Sprintf("delete all messages of %q that are %s?", args[0], state)); err != nil {
				return err
			}
			n, err := q.Purge(ctx, s)
			if err != nil {
				return err
			}
			return a.changed(n, "message", "messages")
		}),
	}
	yesFlag(cmd, &yes)
	stateFlag(cmd, &state, "dead")
	return cmd
}

// changed says how many messages were changed.
func (a *app) changed(n int, one, many string) error {
	if a.json {
		return a.print(map[string]int{many: n}, nil)
	}
	_, err := fmt.Fprintln(a.out, inspect.N(n, one, many))
	return err
}

func (a *app) queuePause() *cobra.Command {
	lasts := time.Duration(0)
	cmd := &cobra.Command{
		Use: "pause NAME", Short: "Deliver nothing until resume, or for a time; what is in flight goes on",
		Example: "  redlatch queue pause mails\n  redlatch queue pause mails --for 10m", Args: exactly(1),
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "after which time to deliver again by itself, from 1ms")
	cmd.RunE = a.onQueue(func(ctx context.Context, q *jobs, _ []string) error {
		if cmd.Flags().Changed("for") {
			return q.PauseFor(ctx, lasts)
		}
		return q.Pause(ctx)
	})
	return cmd
}

func (a *app) queueResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "Deliver again", Example: "  redlatch queue resume mails", Args: exactly(1),
		RunE: a.onQueue(func(ctx context.Context, q *jobs, _ []string) error { return q.Resume(ctx) }),
	}
}
