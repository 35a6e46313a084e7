package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/relection"
)

func (a *app) elect() *cobra.Command {
	return a.group("elect", "Look at an election, or run a program as its leader", []string{kinds.Election}, a.electInfo(), a.electWatch(), a.electRun())
}

// electionState is an election as it is printed.
type electionState struct{ inspect.Election }

func (s *electionState) write(w io.Writer) error {
	err := row(w, "election", s.Name)
	if s.Leader == nil {
		err = errors.Join(err, row(w, "led by", "nobody"))
	} else {
		err = errors.Join(err, row(w, "led by", s.Leader.ID), row(w, "  value", s.Leader.Value), row(w, "  term", s.Leader.Term),
			row(w, "  since", at(s.Leader.Since)))
	}
	err = errors.Join(err, row(w, "candidates", len(s.Candidates)))
	for i, c := range s.Candidates {
		err = errors.Join(err, row(w, fmt.Sprintf("  %d", i+1), c.ID, c.Value))
	}
	return err
}

func (a *app) electInfo() *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Who leads, in which term, and who comes next", Example: "  redlatch elect info workers", Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			s, err := electionOf(ctx, c, args[0])
			if err != nil {
				return err
			}
			err = a.print(s, s.write)
			if err == nil && s.Leader == nil && len(s.Candidates) == 0 {
				err = nothingOf(args[0], "nobody leads, and nobody campaigns")
			}
			return err
		}),
	}
}

func electionOf(ctx context.Context, c *redlatch.Client, name string) (electionState, error) {
	e, err := inspect.ElectionOf(ctx, c, name)
	return electionState{e}, err
}

// leadership is what watch sees of an election.
type leadership struct {
	Name   string
	Leader *relection.Leader // nil if nobody leads
}

func (a *app) electWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch NAME", Short: "Print who leads, and each change, until it is interrupted",
		Example: "  redlatch elect watch workers", Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			for leader, err := range c.GetElection(args[0]).Observe(ctx) {
				s := leadership{args[0], &leader}
				switch {
				case errors.Is(err, relection.ErrNoLeader):
					s.Leader = nil
				case err != nil:
					return err
				}
				err = a.line(s, func() string {
					if s.Leader == nil {
						return "nobody leads"
					}
					return fmt.Sprintf("term %d, led by %s %s", leader.Term, leader.ID, leader.Value)
				})
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func (a *app) electRun() *cobra.Command {
	var lease, killAfter time.Duration
	value := ""
	cmd := &cobra.Command{
		Use: "run [flags] NAME -- PROGRAM [ARGUMENTS]", Short: "Wait to be elected, and run a program as the leader",
		Long: `Wait to be elected, and run a program as the leader; its term is in REDLATCH_TERM. When the program and all that it has
started have ended, the next candidate is elected. Signals are passed on as by "lock run". If the leadership is lost, they
get SIGTERM and the exit code is 76.`,
		Example:           "  redlatch elect run workers --value \"$HOSTNAME\" -- ./worker",
		Args:              checked(programAfterDash),
		ValidArgsFunction: a.nameThenProgram([]string{kinds.Election}),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := programPath(args[1])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := a.open(ctx, redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.NewTextHandler(a.err, nil))))
			if err != nil {
				return err
			}
			child := exec.Command(path, args[2:]...)
			return a.runWhile(ctx, child, killAfter, func(waiting context.Context) (*holding, error) {
				l, err := c.GetElection(args[0]).Campaign(waiting, relection.WithValue(value))
				if err != nil {
					return nil, err
				}
				child.Env = append(child.Environ(), "REDLATCH_TERM="+strconv.FormatInt(l.Term(), 10))
				return &holding{l.Context(), l.Resign}, nil
			})
		},
	}
	cmd.Flags().DurationVar(&lease, "lease", 30*time.Second, "how long nobody else is elected if this command dies")
	cmd.Flags().StringVar(&value, "value", "", "what others see of the leader")
	killAfterFlag(cmd, &killAfter)
	return cmd
}
