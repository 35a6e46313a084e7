package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

func (a *app) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls [PATTERN]", Short: "List locks that are held, semaphores, latches, queues, elections and schedulers", Example: "  redlatch ls 'orders:*'",
		Args: checked(cobra.MaximumNArgs(1)),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			pattern := ""
			if len(args) > 0 {
				pattern = args[0]
			}
			if a.json {
				for o, err := range c.Objects(ctx, pattern) {
					if err == nil {
						err = a.print(o, nil)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}
			return a.table(a.out, func(w io.Writer) error { return objects(w, c.Objects(ctx, pattern)) })
		}),
	}
}

// objects writes a table of objects, a page at a time.
func objects(w io.Writer, all iter.Seq2[redlatch.Object, error]) error {
	err := row(w, "KIND", "NAME", "STATE")
	n := 0
	for o, failed := range all {
		if failed != nil {
			return failed
		}
		if err = errors.Join(err, row(w, o.Kind, o.Name, inspect.SummaryOf(o).State)); err != nil {
			return err
		}
		if n++; n%100 == 0 {
			err = w.(*tabwriter.Writer).Flush()
		}
	}
	return err
}

func (a *app) clients() *cobra.Command {
	return &cobra.Command{
		Use: "clients", Short: "List the clients that hold or wait for something", Args: exactly(0),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, _ []string) error {
			all, err := c.Clients(ctx)
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) error {
				err := row(w, "NAME", "ID")
				for _, one := range all {
					err = errors.Join(err, row(w, one.Name, one.ID))
				}
				return err
			})
		}),
	}
}

func (a *app) aClient() *cobra.Command {
	return &cobra.Command{
		Use: "client ID", Short: "What a client holds and waits for, and what it has lost", Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			r, err := c.Ask(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) error {
				err := errors.Join(row(w, "client", r.ID), row(w, "host", r.Host), row(w, "pid", r.PID), row(w, "up", r.Up),
					row(w, "version", r.Version, r.Go), row(w, "holds", r.HoldCount), row(w, "waits", r.WaitCount), row(w, "lost", r.LossCount))
				for _, h := range r.Holds {
					err = errors.Join(err, row(w, "holds", h.Kind, h.Name, h.Mode, time.Since(h.Since), h.Site))
				}
				for _, one := range r.Waits {
					err = errors.Join(err, row(w, "waits for", one.Kind, one.Name, "", time.Since(one.Since), one.Site))
				}
				for _, l := range r.Losses {
					err = errors.Join(err, row(w, "lost", l.Kind, l.Name, "", time.Since(l.At), "held for", l.Held))
				}
				return err
			})
		}),
	}
}
