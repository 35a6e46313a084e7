package main

import (
	"context"
	"encoding/json"
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
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func (a *app) queue() *cobra.Command {
	return a.group("queue", "Look at a delayed queue, and operate it", []string{kinds.Queue}, a.queueStats(), a.queueErrors(), a.queueTail(), a.queueList(), a.queueGet(),
		a.queueCancel(), a.queueRedrive(), a.queuePurge(),
		a.queuePause(), a.queueResume())
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
		Use: "stats NAME", Aliases: []string{"info"}, Short: "How many messages are in each state", Example: "  redlatch queue stats mails", Args: exactly(1),
		Long: `How many messages are in each state. "being retried" are those that are delayed, ready or in flight, and have had an
attempt that ended with an error, or whose claim ran out; other delayed ones are meant for later. After how many attempts a
message is dead is a setting of its consumer, rdelayedqueue.WithMaxAttempts, and not known here. "lag" is for how long the message has been
due that has been due longest, "oldest" in JSON. "group waits" is of how many groups a message waits for another one; "priority 9" and the like are the
messages with that priority that are delayed or ready.`,
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			s, err := a.stats(ctx, q, args[0])
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) error { return writeStats(w, args[0], s) })
		}),
	}
}

func writeStats(w io.Writer, name string, s rdelayedqueue.Stats) error {
	return writeCounts(w, "queue", name, s)
}

// writeCounts writes the numbers of an object of a kind.
func writeCounts(w io.Writer, kind, name string, s rdelayedqueue.Stats) error {
	paused := strconv.FormatBool(s.Paused)
	if !s.PausedUntil.IsZero() {
		paused = "until " + s.PausedUntil.UTC().Format(time.RFC3339)
	}
	err := errors.Join(row(w, kind, name), row(w, "delayed", s.Delayed), row(w, "ready", s.Ready), row(w, "in flight", s.InFlight),
		row(w, "dead", s.Dead), row(w, "being retried", s.Failed), row(w, "paused", paused), row(w, "lag", s.Oldest),
		row(w, "group waits", s.Groups))
	for p, n := range slices.Backward(s.Priorities[:]) {
		if n > 0 {
			err = errors.Join(err, row(w, fmt.Sprintf("priority %d", p), n))
		}
	}
	return err
}

// stats returns how many messages a queue has. One that Redis does not have is an error.
func (a *app) stats(ctx context.Context, q *jobs, name string) (rdelayedqueue.Stats, error) {
	s, err := q.Stats(ctx)
	if err == nil && s == (rdelayedqueue.Stats{}) {
		err = a.thereIs(ctx, name)
	}
	return s, err
}

// thereIs returns an error if Redis has no queue of a name. Where the user may not look for it, it counts as there.
func (a *app) thereIs(ctx context.Context, name string) error {
	for _, err := range a.client.Objects(ctx, core.EscapePattern(name), redlatch.WithKinds(kinds.Queue)) {
		if errors.Is(err, redlatch.ErrUnavailable) {
			return err
		}
		return nil //nolint:nilerr // as said above
	}
	return &exit{exitFailed, fmt.Errorf("there is no queue %q", name)}
}

// errorCount is an error of a queue, and how many messages have it.
type errorCount struct {
	Error         string
	Dead, Retried int
}

func (a *app) queueErrors() *cobra.Command {
	return &cobra.Command{
		Use: "errors NAME", Short: "The errors of a queue by their first line, and how many messages have each", Example: "  redlatch queue errors mails",
		Args: exactly(1),
		Long: `The errors of a queue by their first line, the most frequent first, and how many messages have each: dead ones, and those that
are being retried. It looks at up to 10,000 messages of each state, of dead letters at the newest, for as long as there is time.`,
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			s, err := a.stats(ctx, inspect.QueueOf(c, args[0]), args[0])
			if err != nil {
				return err
			}
			var surveys []inspect.Survey
			for _, state := range inspect.States() {
				if state == rdelayedqueue.Dead && s.Dead == 0 || state != rdelayedqueue.Dead && s.Failed == 0 {
					continue
				}
				v, err := inspect.MessagesOf(c, inspect.Object{Kind: kinds.Queue, Name: args[0]}).Survey(ctx, state)
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
				err := row(w, "DEAD", "RETRIED", "ERROR")
				for _, e := range all {
					err = errors.Join(err, row(w, e.Dead, e.Retried, e.Error))
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

// job is a message as it is printed.
type job inspect.Message

func shown(e rdelayedqueue.Entry[[]byte], payload bool) job {
	return job(inspect.MessageOf(e, payload))
}

func (j job) row(w io.Writer) error {
	cells := []any{j.ID, j.State, j.Attempt, j.DueAt.UTC().Format(time.RFC3339), inspect.FirstLine(j.Error)}
	if j.Payload != nil {
		text, err := json.Marshal(j.Payload)
		if err != nil {
			return err
		}
		cells = append(cells, string(text))
	}
	return row(w, cells...)
}

// write writes all there is to say of a message.
func (j job) write(w io.Writer) error {
	err := errors.Join(row(w, "message", j.ID), row(w, "state", j.State), row(w, "attempt", j.Attempt),
		row(w, inspect.TimeName(j.State), j.DueAt.UTC().Format(time.RFC3339)))
	name := "error"
	for line := range strings.Lines(j.Error) {
		err = errors.Join(err, row(w, name, strings.TrimSuffix(line, "\n")))
		name = ""
	}
	for _, tried := range j.History {
		took := "did not end"
		if tried.Took >= 0 {
			took = "took " + tried.Took.Round(time.Millisecond).String()
		}
		err = errors.Join(err, row(w, "attempt "+at(tried.Started), took+", "+tried.Where+": "+inspect.FirstLine(tried.Err)))
	}
	if j.Payload != nil {
		text, failed := json.Marshal(j.Payload)
		err = errors.Join(err, failed, row(w, "payload", string(text)))
	}
	return err
}

func (a *app) queueList() *cobra.Command {
	state, most, payload := "", 0, false
	cmd := &cobra.Command{
		Use: "ls NAME", Short: "List messages, those that are due first", Args: exactly(1),
		Long: `List messages, those that are due first, with the first line of their last error, of which a terminal shows as much as
has room. get prints all of it.`,
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
			all := []job{} // none is a list too, in JSON
			for e, err := range q.All(cmd.Context(), s) {
				if err != nil {
					return err
				}
				if all = append(all, shown(e, payload)); len(all) == most {
					break
				}
			}
			if len(all) == 0 {
				stats, err := a.stats(cmd.Context(), q, args[0])
				if err != nil {
					return err
				}
				a.hint("none of that state; there are: %s; see --state", inspect.Counts(stats))
			}
			show := a.list
			if payload { // which stands behind the errors
				show = a.print
			}
			return show(all, func(w io.Writer) error {
				heads := []any{"ID", "STATE", "ATTEMPT", strings.ToUpper(inspect.TimeName(inspect.StateName(s))), "ERROR"}
				if payload {
					heads = append(heads, "PAYLOAD")
				}
				err := row(w, heads...)
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
		Long: `Print a message.

With --payloads, MessagePack and JSON are printed as JSON, other text as it is, and other bytes in base64. A JSON
payload that is one digit is read as MessagePack, which it is too: 7 is printed as 55.`,
		Example: "  redlatch queue get mails 01a20e3c-4314-7d0b-80c6-22963ef0764d --payloads",
		RunE: a.onQueue(func(ctx context.Context, q *jobs, args []string) error {
			e, err := q.Get(ctx, args[1])
			if err != nil {
				return err
			}
			j := shown(*e, payload)
			return a.print(j, j.write)
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
		Use: "redrive NAME [ID]", Short: "Have a dead letter, or all of them, delivered again, with their attempts counted anew",
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
