package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rexecutor"
)

func (a *app) exec() *cobra.Command {
	list := a.messages(kinds.Executor, "List tasks, those that are due first", "", "  redlatch exec ls media --state dead")
	verbs := []*cobra.Command{a.execStats(), list, a.execSubmit(), a.execStatus(), a.execGet(), a.execCancel(), a.execRedrive()}
	for _, verb := range verbs {
		verb.ValidArgsFunction = a.completing(func(ctx context.Context, c *redlatch.Client, found func(name string)) {
			for o, err := range c.Objects(ctx, "", redlatch.WithKinds(kinds.Executor)) {
				if err != nil {
					break
				}
				found(o.Name)
			}
		})
	}
	cmd := a.group("exec", "Look at the tasks of an executor, submit them, and wait for their results", nil, verbs...)
	cmd.Long = cmd.Short + `.

The executor "media" is the queue "{media}:tasks" for "redlatch queue", which pauses and resumes it, counts its errors,
follows its numbers and deletes its tasks by state.`
	return cmd
}

// onExecutor runs a command on the executor that its first argument names.
func (a *app) onExecutor(do func(ctx context.Context, ex *rexecutor.Executor, args []string) error) func(*cobra.Command, []string) error {
	return a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
		return do(ctx, rexecutor.New(c, args[0]), args)
	})
}

func (a *app) execStats() *cobra.Command {
	return &cobra.Command{
		Use: "stats NAME", Short: "How many tasks are in each state, and which nobody handles", Example: "  redlatch exec stats media", Args: exactly(1),
		Long: `How many tasks are in each state, as "queue stats" has it, and of each name how many; of those in flight
and dead the 10,000 newest are counted. A task is orphaned if some of its name wait and no worker that handles them has
been there for 25 s. The executor "media" is the queue "{media}:tasks" for redlatch queue.`,
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			return a.numbers(ctx, inspect.MessagesOf(c, inspect.Object{Kind: kinds.Executor, Name: args[0]}))
		}),
	}
}

func (a *app) execSubmit() *cobra.Command {
	var id, group, encoding string
	var delay time.Duration
	var priority, attempts int
	cmd := &cobra.Command{
		Use: "submit NAME TASK JSON", Short: "Submit a task, and print its id",
		Long: `Submit a task with arguments given as JSON, and print its id. They are encoded with MessagePack, which is what executors
use unless rexecutor.WithCodec says otherwise, or as JSON with --codec json. Fields have the names that the codec gives them.
"exec get" waits for the result. The attempts, the priority and the expiry of the program's rexecutor.NewTask are not known
here, nor the capacity of its executor, which this submission may exceed. A name that no program knows is submitted too, and
waits: "exec stats" shows which tasks no worker handles.

Nothing is submitted if a task with the id of --id waits, runs, has failed, or has a result that is kept. If Redis did not
say whether it was submitted, the id is printed all the same, and the exit code is 69.`,
		Example: `  redlatch exec submit media resize '{"Path": "a.png", "Width": 200}' --priority 5
  id=$(redlatch exec submit media resize '{"Path": "a.png"}') && redlatch exec get media "$id"`, Args: exactly(3),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			value, err := argumentsOf(args[2])
			if err != nil {
				return &exit{exitUsage, err}
			}
			var opts []rexecutor.Option
			switch encoding {
			case "msgpack":
			case "json":
				opts = append(opts, rexecutor.WithCodec(codec.JSON{}))
			default:
				return &exit{exitUsage, fmt.Errorf("there is no codec %q: msgpack or json", encoding)}
			}
			with := []rexecutor.SubmitOption{rexecutor.WithDelay(delay), rexecutor.WithPriority(priority), rexecutor.WithMaxAttempts(attempts)}
			if id != "" {
				with = append(with, rexecutor.WithID(id))
			}
			if group != "" {
				with = append(with, rexecutor.WithGroup(group))
			}
			f, err := rexecutor.NewTask[any, any](args[1]).Submit(ctx, rexecutor.New(c, args[0], opts...), value, with...)
			if f == nil {
				return err
			}
			return errors.Join(a.print(submitted{f.ID()}, func(w io.Writer) error { return row(w, f.ID()) }), err)
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "the id; nothing is submitted if a task has it")
	cmd.Flags().StringVar(&group, "group", "", "the group")
	cmd.Flags().DurationVar(&delay, "delay", 0, "after which time it is due")
	cmd.Flags().IntVar(&priority, "priority", 0, "0 to 9")
	cmd.Flags().IntVar(&attempts, "attempts", 10, "after how many it has failed for good; 0 for no limit")
	cmd.Flags().StringVar(&encoding, "codec", "msgpack", "msgpack or json")
	complete(cmd, "codec", "msgpack", "json")
	return cmd
}

// submitted is a task that was submitted, as it is printed.
type submitted struct{ ID string }

// argumentsOf reads JSON. Whole numbers are integers.
func argumentsOf(text string) (value any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the arguments are more than one JSON value")
	}
	return integers(value), nil
}

func integers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // it was read as a number
		return f
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	}
	return value
}

func (a *app) execStatus() *cobra.Command {
	payload := false
	cmd := &cobra.Command{
		Use: "status NAME ID", Short: "Print a task", Args: exactly(2),
		Long: `Print a task as "queue get" prints a message. For a task that is done or was cancelled it prints only that, and its name,
as long as they are kept. "exec get" prints the result.`,
		Example: "  redlatch exec status media 01a20e3c-4314-7d0b-80c6-22963ef0764d --payloads",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			err := a.status(ctx, c, args[0], args[1], payload)
			if errors.Is(err, rexecutor.ErrNotFound) { // the task has ended since the first of the two calls
				err = a.status(ctx, c, args[0], args[1], payload)
			}
			return err
		}),
	}
	payloadFlag(cmd, &payload)
	return cmd
}

func (a *app) status(ctx context.Context, c *redlatch.Client, name, id string, payload bool) error {
	fate, err := fateOf(ctx, c, name, id)
	if err != nil {
		return err
	}
	if word := ended[fate.State]; word != "" {
		j := job{Message: inspect.Message{ID: id, Task: fate.Task, State: word}}
		return a.print(j, j.write)
	}
	return a.message(ctx, inspect.MessagesOf(c, inspect.Object{Kind: kinds.Executor, Name: name}), id, payload)
}

func (a *app) execGet() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "get NAME ID", Short: "Wait until a task has ended, and print its result as JSON", Args: exactly(2),
		Long: `Wait until a task has ended, and print its result as JSON, as "queue get --payloads" prints what a message says. That of a
task without one is {}.

The exit code is 77 if the task has failed for good, 78 if it was cancelled, 79 if it has expired, 75 if it has not ended
within --wait, and 1 if it is not there: no such task was submitted, its result is over, or none was asked for, as of those
that a program has sent with Send.`,
		Example: "  redlatch exec get media 01a20e3c-4314-7d0b-80c6-22963ef0764d --wait 1m",
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the end (default: as long as it takes)")
	cmd.RunE = a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
		if cmd.Flags().Changed("wait") {
			if wait <= 0 {
				return &exit{exitUsage, errors.New("--wait must be more than 0")}
			}
			limited, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			ctx = limited
		}
		result, err := resultOf(ctx, c, args[0], args[1])
		if err != nil {
			return unended(err)
		}
		return a.encode(inspect.Decoded(result))
	})
	return cmd
}

// resultOf waits for the result of a task of any name, and returns it as it is encoded.
func resultOf(ctx context.Context, c *redlatch.Client, name, id string) ([]byte, error) {
	fate, err := fateOf(ctx, c, name, id)
	if err != nil {
		return nil, err
	}
	task := rexecutor.NewTask[any, []byte](fate.Task)
	return task.Future(rexecutor.New(c, name, rexecutor.WithCodec(codec.Bytes{})), id).Get(ctx)
}

// fateOf asks what became of a task of any name.
func fateOf(ctx context.Context, c *redlatch.Client, name, id string) (queue.Fate, error) {
	fates, err := core.Manager(core.Of(c), queue.New).Derived(kinds.Executor, name, queue.TasksSuffix).Look(ctx, []string{id})
	switch {
	case err != nil:
		return queue.Fate{}, fmt.Errorf("look at a task of %q: %w", name, err)
	case fates[0].State == queue.Unknown:
		return queue.Fate{}, &exit{exitFailed, fmt.Errorf("there is no task %q", id)}
	}
	return fates[0], nil
}

// unended gives an error of a task its exit code.
func unended(err error) error {
	var failed *rexecutor.TaskError
	switch {
	case errors.As(err, &failed):
		return &exit{exitTaskFailed, err}
	case errors.Is(err, rexecutor.ErrCancelled):
		return &exit{exitCancelled, err}
	case errors.Is(err, rexecutor.ErrExpired):
		return &exit{exitExpired, err}
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redlatch.ErrUnavailable):
		return &exit{exitTaken, errors.New("the task has not ended within --wait")}
	}
	return err
}

func (a *app) execCancel() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "cancel NAME ID", Short: "Cancel a task, also one that runs", Example: "  redlatch exec cancel media 01a20e3c-4314-7d0b-80c6-22963ef0764d", Args: exactly(2),
		RunE: a.onExecutor(func(ctx context.Context, ex *rexecutor.Executor, args []string) error {
			if err := a.confirm(ctx, yes, fmt.Sprintf("cancel the task %q of %q?", args[1], args[0])); err != nil {
				return err
			}
			ok, err := ex.Queue().Cancel(ctx, args[1])
			if err != nil {
				return err
			}
			if !ok {
				return &exit{exitFailed, fmt.Errorf("there is no task %q", args[1])}
			}
			return a.changed(1, "task", "tasks")
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}

func (a *app) execRedrive() *cobra.Command {
	return &cobra.Command{
		Use: "redrive NAME [ID]", Short: "Run a dead task again, or all of them; their attempts start over",
		Example: "  redlatch exec redrive media\n  redlatch exec redrive media 01a20e3c-4314-7d0b-80c6-22963ef0764d",
		Args:    checked(cobra.RangeArgs(1, 2)),
		RunE: a.onExecutor(func(ctx context.Context, ex *rexecutor.Executor, args []string) error {
			return a.redrive(ctx, ex.Queue(), args[1:], "task", "dead task")
		}),
	}
}
