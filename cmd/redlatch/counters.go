package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rsemaphore"
)

func (a *app) sem() *cobra.Command {
	return a.group("sem", "Look at a semaphore", []string{kinds.Semaphore, kinds.Permits}, &cobra.Command{
		Use: "info NAME", Short: "How many permits are available, who has leased ones, and how many clients wait",
		Long: `How many permits are available, who has leased ones, and how many clients wait. A semaphore that nobody has given permits has
none available; that is no error.`,
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
	return a.group("latch", "Look at a latch", []string{kinds.Latch}, &cobra.Command{
		Use: "info NAME", Short: "The count, and how many clients wait",
		Long: "The count, and how many clients wait. A latch without a count is open, and its count is 0; that is no error.", Example: "  redlatch latch info ready", Args: exactly(1),
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

func (a *app) barrier() *cobra.Command {
	return a.group("barrier", "Look at a barrier", []string{kinds.Barrier}, &cobra.Command{
		Use: "info NAME", Short: "How many participants there are, and who has arrived, is inside and leaves", Args: exactly(1),
		Long: `How many participants there are, and who has arrived; of a double barrier also who is inside and who leaves.
If a barrier and a double barrier have the name, it shows both. It lists the first 100 of each, those first whose
clients have not been heard of for longest: left is when their round breaks, unless they are heard of before.`,
		Example: "  redlatch barrier info start",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			b, err := inspect.BarriersOf(ctx, c, args[0])
			if err != nil {
				return err
			}
			err = a.print(b, func(w io.Writer) error { return writeBarriers(w, b) })
			if err == nil && len(b.InUse) == 0 {
				err = nothingOf(args[0], "a barrier that nobody uses has no key")
			}
			return err
		}),
	})
}

func writeBarriers(w io.Writer, b inspect.Barriers) (err error) {
	if len(b.InUse) == 0 {
		return errors.Join(row(w, "barrier", b.Name), row(w, "participants", "not known: nobody has used it for a minute"))
	}
	for _, i := range b.InUse {
		if !i.Double {
			err = errors.Join(err, row(w, "barrier", i.Name), row(w, "participants", i.Participants), crowd(w, "arrived", i.Arrived))
			continue
		}
		err = errors.Join(err, row(w, "double barrier", i.Name), row(w, "participants", i.Participants), crowd(w, "arrived", i.Arrived),
			crowd(w, "inside", i.Inside), crowd(w, "leaving", i.Leaving))
	}
	return err
}

// crowd writes how many participants have arrived, are inside or leave, and who.
func crowd(w io.Writer, what string, c rbarrier.Crowd) error {
	err := row(w, what, c.Count)
	for _, p := range c.Places {
		err = errors.Join(err, row(w, "", p.Owner, "left "+p.Left.String()))
	}
	return errors.Join(err, more(w, c.Count-len(c.Places)))
}
