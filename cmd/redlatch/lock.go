package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

func (a *app) lock() *cobra.Command {
	return a.group("lock", "Look at a lock, free it, or run a program under it", lockKinds(), a.lockInfo(), a.lockForce(), a.lockWatch(), a.lockRun())
}

// lockState is a lock as it is printed.
type lockState struct{ inspect.Lock }

// inspected asks for the state of a lock. A name that is no lock's is an error.
func inspected(ctx context.Context, c *redlatch.Client, name string) (lockState, error) {
	l, err := inspect.LockOf(ctx, c, name)
	return lockState{l}, err
}

func (s *lockState) write(w io.Writer) error {
	err := row(w, "lock", s.Name)
	if !s.Locked {
		return errors.Join(err, row(w, "held", "no"), row(w, "waiting", waiting(s.Waiting, "")), s.writeQueue(w))
	}
	if s.Mode != "" {
		err = errors.Join(err, row(w, "held to", s.Mode))
	}
	for _, h := range s.Holders {
		left := any(h.Left)
		if h.Left < 0 {
			left = "without end"
		}
		err = errors.Join(err, row(w, "held by", h.Owner), row(w, "  levels", h.Levels), row(w, "  lease left", left))
		if h.Since.IsZero() {
			err = errors.Join(err, row(w, "  held for", "not known: its client says so once it has held something for 3 s"))
		} else {
			err = errors.Join(err, row(w, "  held for", time.Since(h.Since)), row(w, "  since", h.Since.UTC().Format(time.RFC3339)), row(w, "  renewed", h.Renewed), row(w, "  process", fmt.Sprintf("%d on %s", h.PID, h.Host)))
		}
		if h.Site != "" {
			err = errors.Join(err, row(w, "  acquired at", h.Site))
		}
	}
	err = errors.Join(err, more(w, s.MoreHolders))
	if s.Token != 0 {
		err = errors.Join(err, row(w, "token", s.Token))
	}
	for _, c := range s.Circles {
		name := "circle"
		for _, line := range c.Lines() {
			err = errors.Join(err, row(w, name, line))
			name = ""
		}
	}
	err = errors.Join(err, row(w, "waiting", waiting(s.Waiting, "other ")), s.writeQueue(w))
	for _, call := range s.Waits {
		text := fmt.Sprintf("%s, for %v", call.Client, time.Since(call.Since).Round(time.Millisecond))
		if call.Site != "" {
			text += ", at " + call.Site
		}
		err = errors.Join(err, row(w, "  a call of", text))
	}
	err = errors.Join(err, more(w, s.MoreWaits))
	return err
}

// more says how many there are that are not listed, if there are any.
func more(w io.Writer, n int) error {
	if n <= 0 {
		return nil
	}
	return row(w, "", inspect.More(n))
}

// waiting says how many clients wait, of which the others have a word.
func waiting(n int, other string) string {
	if n < 0 {
		return "not known: the user may not ask"
	}
	return inspect.N(n, other+"client", other+"clients")
}

// writeQueue writes who queues for a fair lock.
func (s *lockState) writeQueue(w io.Writer) (err error) {
	for i, waiter := range s.Queue {
		text := waiter.Owner
		if waiter.Left == 0 {
			text += ", dead: its time is over"
		}
		err = errors.Join(err, row(w, fmt.Sprintf("  %d", i+1), text))
	}
	return errors.Join(err, more(w, s.MoreQueued))
}

func (a *app) lockInfo() *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Who holds a lock, since when, and who waits", Args: exactly(1),
		Long: `Who holds a lock, and who waits. The holder's client says since when, how often it was renewed (three times in a
lease, and once a second while another call of its process waits), and with redlatch.WithCallSites where it was
acquired. The clients that wait say likewise, of the first 50 clients; the longest 100 waits are listed. "circle" says which
clients seem to wait for each other for ever. A client says that once it has held or waited for something for three
seconds. One that does not listen, and Java, do not. If Redis has nothing of that name, the exit code is 1.`,
		Example: "  redlatch lock info orders",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			s, err := inspected(ctx, c, args[0])
			if err != nil {
				return err
			}
			s.Ask(ctx, c)
			err = a.print(s, s.write)
			if err == nil && !s.Locked && s.Waiting == 0 && s.Token == 0 && len(s.Queue) == 0 {
				err = nothingOf(args[0], "a lock that is free has no key")
			}
			return err
		}),
	}
}

// nothingOf is the error of a look at what Redis does not have.
func nothingOf(name, why string) error {
	return &exit{exitFailed, fmt.Errorf("nothing is named %q in Redis: %s; is the name right?", name, why)}
}

func (a *app) lockForce() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "force NAME", Short: "Free a lock from those who hold it", Args: exactly(1),
		Long: `Free a lock from those who hold it, and wake its waiters. The holder's work goes on until its next renewal, up to a third
of its lease later: until then two may work at the same time. If the holder's process is dead, its lease ends by itself.
It prints from whom the lock was taken.

It frees the lock only from the holders that it has shown: if another one holds it after the answer, nothing is done, and
the exit code is 75. If it has shown 100 readers, it takes the lock from all that read. Whoever acquires it in the very moment of the release, a round trip after that look, loses it too.`,
		Example: "  redlatch lock force orders",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			s, err := inspected(ctx, c, args[0])
			if err != nil {
				return err
			}
			if !s.Locked {
				return &exit{exitFailed, fmt.Errorf("nobody holds %q", args[0])}
			}
			s.Ask(ctx, c)
			if !yes {
				if err := a.table(a.err, s.write); err != nil {
					return err
				}
			}
			if err := a.confirm(ctx, yes, fmt.Sprintf("free %q?", args[0])); err != nil {
				return err
			}
			freed, err := s.Force(ctx, c)
			switch {
			case errors.Is(err, inspect.ErrOthers):
				return &exit{exitTaken, fmt.Errorf("nothing was done, look at %q again: %w", args[0], err)}
			case err != nil:
				return err
			case !freed:
				return &exit{exitFailed, fmt.Errorf("nobody holds %q any more", args[0])}
			}
			return a.print(s, s.writeTaken)
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}

// writeTaken says from whom the lock was taken.
func (s *lockState) writeTaken(w io.Writer) error {
	err := row(w, "freed", s.Name)
	for _, h := range s.Holders {
		text := h.Owner
		if !h.Since.IsZero() {
			text += fmt.Sprintf(", which held it for %v", time.Since(h.Since).Round(time.Millisecond))
		}
		err = errors.Join(err, row(w, "taken from", text))
	}
	return errors.Join(err, more(w, s.MoreHolders), row(w, "waiting", waiting(s.Waiting, "")))
}

// sight is what watch sees of a lock: nothing that changes while it stays with its holder.
type sight struct {
	Name    string
	Locked  bool
	Mode    string
	Token   int64
	Waiting int
	Holders []party
	Queue   []party

	MoreHolders int // who are not listed
}

// party is an owner id, and the client that it is of.
type party struct{ Owner, Client string }

func (s *lockState) sight() sight {
	v := sight{Name: s.Name, Locked: s.Locked, Mode: s.Mode, Token: s.Token, Waiting: s.Waiting, MoreHolders: s.MoreHolders}
	for _, h := range s.Holders {
		v.Holders = append(v.Holders, party{h.Owner, h.Client})
	}
	for _, w := range s.Queue {
		v.Queue = append(v.Queue, party{w.Owner, w.Client})
	}
	return v
}

func (a *app) lockWatch() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "watch NAME", Short: "Print who holds a lock, each time that changes", Args: exactly(1),
		Long: `Print who holds a lock and how many wait, each time that changes, until it is interrupted. It looks now and then:
it does not see a hold that is shorter than that.`,
		Example: "  redlatch lock watch orders --every 200ms",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			look := func(ctx context.Context) (sight, error) {
				s, err := inspected(ctx, c, args[0])
				return s.sight(), err
			}
			return follow(ctx, every, look, func(s sight) error {
				return a.line(s, func() string {
					if !s.Locked {
						return "free, " + inspect.Waiting(s.Waiting)
					}
					others := 0
					if s.Mode == "read" {
						others = len(s.Holders) + s.MoreHolders - 1
					}
					return fmt.Sprintf("held by %s, %s", inspect.AndMore(s.Holders[0].Owner, others), inspect.Waiting(s.Waiting))
				})
			})
		}),
	}
	everyFlag(cmd, &every)
	return cmd
}

// follow looks again and again, and shows what has changed, until ctx ends.
func follow[T any](ctx context.Context, every time.Duration, look func(context.Context) (T, error), show func(T) error) error {
	if every < 10*time.Millisecond {
		return &exit{exitUsage, errors.New("--every must be 10ms or more")}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last any
	for {
		now, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !reflect.DeepEqual(last, any(now)):
			if err := show(now); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func everyFlag(cmd *cobra.Command, every *time.Duration) {
	cmd.Flags().DurationVar(every, "every", time.Second, "how often to look")
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do not ask")
}
