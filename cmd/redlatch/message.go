package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
)

// messages lists those of a queue, or the tasks of an executor.
func (a *app) messages(kind, short, long, example string) *cobra.Command {
	state, most, payload := "", 0, false
	cmd := &cobra.Command{
		Use: "ls NAME", Short: short, Long: long, Example: example, Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			s, err := stateOf(state)
			if err != nil {
				return err
			}
			if most < 1 {
				return &exit{exitUsage, errors.New("-n must be 1 or more")}
			}
			q := inspect.MessagesOf(c, inspect.Object{Kind: kind, Name: args[0]})
			q.Payloads = payload
			found, _, err := q.Page(ctx, s, "", most)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				if err := a.hintAtOthers(ctx, q); err != nil {
					return err
				}
			}
			all := make([]job, len(found)) // none is a list too, in JSON
			for i, m := range found {
				all[i] = job{Message: m}
			}
			show := a.list
			if payload { // which stands behind the errors
				show = a.print
			}
			return show(all, func(w io.Writer) error { return writeMessages(w, kind, inspect.StateName(s), payload, all) })
		}),
	}
	stateFlag(cmd, &state, "ready")
	cmd.Flags().IntVarP(&most, "count", "n", 100, "how many at the most")
	payloadFlag(cmd, &payload)
	return cmd
}

func writeMessages(w io.Writer, kind, state string, payload bool, all []job) error {
	what := "STATE"
	if kind == kinds.Executor {
		what = "TASK"
	}
	heads := []any{"ID", what, "ATTEMPT", strings.ToUpper(inspect.TimeName(state)), "ERROR"}
	if payload {
		heads = append(heads, "PAYLOAD")
	}
	err := row(w, heads...)
	for _, j := range all {
		cells := []any{j.ID, j.State, j.Attempt, at(j.DueAt), inspect.FirstLine(j.Error)}
		if kind == kinds.Executor {
			cells[1] = j.Task
		}
		if j.Payload != nil {
			text, failed := json.Marshal(j.Payload)
			err, cells = errors.Join(err, failed), append(cells, string(text))
		}
		err = errors.Join(err, row(w, cells...))
	}
	return err
}

// hintAtOthers says how many there are of each state, where none was found of one.
func (a *app) hintAtOthers(ctx context.Context, q *inspect.Messages) error {
	s, err := a.stats(ctx, q)
	if err == nil {
		a.hint("none of that state; there are: %s; see --state", inspect.Counts(s.Stats))
	}
	return err
}

// message prints one.
func (a *app) message(ctx context.Context, q *inspect.Messages, id string, payload bool) error {
	m, headers, err := q.Get(ctx, id)
	if err != nil {
		return err
	}
	j := job{Message: m, Headers: map[string]any{}}
	for name, value := range headers {
		j.Headers[name] = nil
		if payload {
			j.Headers[name] = value
		}
	}
	if !payload {
		j.Payload = nil
	}
	return a.print(j, j.write)
}

// job is a message or a task as it is printed.
type job struct {
	inspect.Message
	Headers map[string]any `json:",omitempty"` // of which a value that is not to be shown is nil
}

// ended has the words for tasks that are in no state of a message.
var ended = map[queue.State]string{queue.Done: "done", queue.Cancelled: "cancelled"} //nolint:gochecknoglobals // a constant in all but name

// write writes all there is to say of it.
func (j job) write(w io.Writer) error {
	what, over := "message", j.State == ended[queue.Done] || j.State == ended[queue.Cancelled]
	if j.Task != "" {
		what = "id"
	}
	err := errors.Join(row(w, what, j.ID), known(w, "task", j.Task), row(w, "state", j.State))
	if over {
		return err
	}
	err = errors.Join(err, row(w, "attempt", j.Attempts()), row(w, inspect.TimeName(j.State), at(j.DueAt)), known(w, "group", j.Group), known(w, "priority", j.Priority),
		known(w, "expiry", j.Expiry))
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		value := j.Headers[name]
		if value == nil {
			value = "not shown without --payloads"
		}
		err = errors.Join(err, row(w, "header "+name, value))
	}
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

// known writes a row for a value that there is.
func known[V comparable](w io.Writer, name string, value V) error {
	var none V
	if value == none {
		return nil
	}
	return row(w, name, value)
}
