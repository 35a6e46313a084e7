package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

func (a *app) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls [PATTERN]", Short: "List locks that are held, semaphores, latches and queues", Example: "  redlatch ls 'orders:*'",
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
		if err = errors.Join(err, row(w, o.Kind, o.Name, state(o))); err != nil {
			return err
		}
		if n++; n%100 == 0 {
			err = w.(*tabwriter.Writer).Flush()
		}
	}
	return err
}

// state says in a few words how an object is.
func state(o redlatch.Object) string {
	switch i := o.Info.(type) {
	case rlock.Info:
		return holder(i)
	case rfairlock.Info:
		return holder(i.Info)
	case rrwlock.Info:
		if i.Writer != nil {
			return fmt.Sprintf("written by %s, %d writers wait", i.Writer.Owner, i.WritersWaiting)
		}
		return fmt.Sprintf("%d readers, %d writers wait", len(i.Readers), i.WritersWaiting)
	case rsemaphore.SemaphoreInfo:
		return fmt.Sprintf("%d available, %d wait", i.Available, i.Waiting)
	case rsemaphore.PermitSemaphoreInfo:
		return fmt.Sprintf("%d of %d available, %d wait", i.Available, i.Permits, i.Waiting)
	case rlatch.Info:
		return fmt.Sprintf("count %d, %d wait", i.Count, i.Waiting)
	case rdelayedqueue.Stats:
		return counts(i)
	}
	return ""
}

func holder(i rlock.Info) string {
	if !i.Locked {
		return "free"
	}
	return fmt.Sprintf("held by %s, %d wait", i.Owner, i.Waiting)
}

func counts(s rdelayedqueue.Stats) string {
	text := fmt.Sprintf("%d delayed, %d ready, %d in flight, %d dead", s.Delayed, s.Ready, s.InFlight, s.Dead)
	if s.Paused {
		text += ", paused"
	}
	return text
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
		Use: "client ID", Short: "What a client holds and waits for", Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			r, err := c.Ask(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) error {
				err := errors.Join(row(w, "client", r.ID), row(w, "host", r.Host), row(w, "pid", r.PID), row(w, "up", r.Up),
					row(w, "version", r.Version, r.Go), row(w, "holds", r.HoldCount), row(w, "waits", r.WaitCount))
				for _, h := range r.Holds {
					err = errors.Join(err, row(w, "holds", h.Kind, h.Name, h.Mode, time.Since(h.Since), h.Site))
				}
				for _, one := range r.Waits {
					err = errors.Join(err, row(w, "waits for", one.Kind, one.Name, "", time.Since(one.Since), one.Site))
				}
				return err
			})
		}),
	}
}
