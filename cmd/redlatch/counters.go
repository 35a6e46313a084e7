package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rsemaphore"
)

func (a *app) sem() *cobra.Command {
	return a.group("sem", "Look at a semaphore", []string{"rsemaphore", "counter"}, &cobra.Command{
		Use: "info NAME", Short: "How many permits are available, who has leased ones, and how many clients wait",
		Example: "  redlatch sem info uploads", Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			info, err := inspect.Permits(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.print(info, func(w io.Writer) error { return writeSemaphore(w, info) })
		}),
	})
}

func writeSemaphore(w io.Writer, info rsemaphore.PermitSemaphoreInfo) error {
	err := errors.Join(row(w, "semaphore", info.Name), row(w, "available", info.Available), row(w, "waiting", waiting(info.Waiting, "")))
	for _, h := range info.Holders {
		err = errors.Join(err, row(w, "permit", h.ID, "client "+h.Client, "left "+h.Left.Round(time.Millisecond).String()))
	}
	return errors.Join(err, more(w, info.Permits-info.Available-len(info.Holders)))
}

func (a *app) latch() *cobra.Command {
	return a.group("latch", "Look at a latch", []string{"rlatch", "counter"}, &cobra.Command{
		Use: "info NAME", Short: "The count, and how many clients wait", Example: "  redlatch latch info ready", Args: exactly(1),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			info, err := c.GetCountDownLatch(args[0]).Info(ctx)
			if err != nil {
				return err
			}
			return a.print(info, func(w io.Writer) error { return writeLatch(w, info) })
		}),
	})
}

func writeLatch(w io.Writer, info rlatch.Info) error {
	return errors.Join(row(w, "latch", info.Name), row(w, "count", info.Count), row(w, "waiting", waiting(info.Waiting, "")))
}
