package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rscheduler"
)

// lease is after which time the run of a process that died is repeated. It is short, so that the example is. The default is 30 s.
const lease = time.Second

// staff are the processes that close what is overdue: clients with connections of their own. The one that closes
// the third order dies.
type staff struct {
	workers sync.WaitGroup
	closed  atomic.Int64 // orders
	again   atomic.Bool  // a run was repeated
}

// hire starts a process, which ends with ctx.
func (all *staff) hire(ctx context.Context, name, url string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	s := &shop{redis.NewClient(options)}
	client, err := redlatch.New(s.rdb, redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler))) // the dead would complain
	if err != nil {
		return errors.Join(err, s.rdb.Close())
	}
	jobs := client.GetScheduler("shop", rscheduler.WithLease(lease))
	err = jobs.Register("close-unpaid", rscheduler.Every(200*time.Millisecond), func(ctx context.Context, run rscheduler.Run) error {
		return all.closeUnpaid(ctx, s, name, run)
	})
	if err != nil {
		return err
	}
	all.workers.Go(func() {
		if err := jobs.Run(ctx); err != nil {
			fmt.Println(name, "stopped:", err)
		}
		_ = client.Close()
		_ = s.rdb.Close() // the dead one's is closed
	})
	return nil
}

// closeUnpaid is the job. What a run that died has closed is closed, and the next attempt does the rest.
func (all *staff) closeUnpaid(ctx context.Context, s *shop, name string, run rscheduler.Run) error {
	// snippet: closeUnpaid
	orders, err := s.overdue(ctx)
	if err != nil {
		return err
	}
	for _, order := range orders {
		closed, err := s.settle(ctx, order, closedState) // unless it was paid, or closed, meanwhile
		if closed {
			err = all.note(s, name, run)
		}
		if err != nil {
			return err
		}
	}
	return nil
	// end snippet
}

// note counts an order that was closed. Of the third one the process dies.
func (all *staff) note(s *shop, name string, run rscheduler.Run) error {
	n := all.closed.Add(1)
	fmt.Printf("%s closes order %d, attempt %d\n", name, n, run.Attempt)
	if run.Attempt > 1 {
		all.again.Store(true)
	}
	if n != 3 {
		return nil
	}
	fmt.Println(name, "dies")
	return s.rdb.Close() // for good: nobody renews the run, and nobody says that it has ended
}
