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
	again   atomic.Int64 // runs that were not the first attempt
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

// closeUnpaid is the job. Each of its steps bears to be repeated.
func (all *staff) closeUnpaid(ctx context.Context, s *shop, name string, run rscheduler.Run) error {
	orders, err := s.overdue(ctx)
	if err != nil {
		return err
	}
	if run.Attempt > 1 {
		all.again.Add(1)
	}
	closed := 0
	for _, order := range orders {
		ok, err := s.settle(ctx, order, closedState)
		if err != nil {
			return err
		}
		if !ok {
			continue // it was paid, or closed, meanwhile
		}
		closed++
		if all.closed.Add(1) == 3 {
			fmt.Printf("%s has closed %d of %d orders, and dies\n", name, closed, len(orders))
			return s.rdb.Close() // for good: nobody renews the run, and nobody says that it has ended
		}
	}
	if closed > 0 {
		fmt.Printf("%s has closed %d orders, attempt %d\n", name, closed, run.Attempt)
	}
	return nil
}
