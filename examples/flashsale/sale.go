package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

//go:embed decide.lua
var decideSource string

// visibility is how long a worker that died keeps its orders. It is short, so that the example is. The default is 30 s.
const visibility = 2 * time.Second

// sale is one sale and the orders that were written for it.
type sale struct {
	prefix, url string
	workers     sync.WaitGroup

	mu      sync.Mutex // guards all below
	written map[string]int
	again   int
}

// order is what the queue carries.
type order struct{ User string }

// door is a client of the sale.
type door struct {
	sale   *sale
	rdb    *redis.Client
	client *redlatch.Client
	queue  *rdelayedqueue.Queue[order]
	decide *redis.Script
}

func (s *sale) connect() (*door, error) {
	options, err := redis.ParseURL(s.url)
	if err != nil {
		return nil, err
	}
	options.PoolTimeout = time.Minute // ten thousand buyers share it
	rdb := redis.NewClient(options)
	client, err := redlatch.New(rdb, redlatch.WithNamePrefix(s.prefix), redlatch.WithCloseGrace(0),
		redlatch.WithLogger(slog.New(slog.DiscardHandler))) // a dead worker would complain
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	queue := redlatch.GetDelayedQueue[order](client, "orders", rdelayedqueue.WithVisibility(visibility))
	return &door{sale: s, rdb: rdb, client: client, queue: queue, decide: redis.NewScript(decideSource)}, nil
}

// open puts the items into stock.
func (s *sale) open(ctx context.Context) (*door, error) {
	d, err := s.connect()
	if err != nil {
		return nil, err
	}
	return d, d.rdb.Set(ctx, s.prefix+"stock", items, time.Minute).Err()
}

func (s *sale) clear(ctx context.Context, d *door) {
	d.rdb.Del(ctx, s.prefix+"stock", s.prefix+"users")
}

func (d *door) leave() {
	d.client.Close()
	d.rdb.Close()
}

// buy reports whether this call has made an order of the user. After an error the user may come again: whoever was accepted once is
// accepted again, and the queue takes one order for each user's id.
func (d *door) buy(ctx context.Context, user string) (bool, error) {
	verdict, err := d.decide.Run(ctx, d.rdb, []string{d.sale.prefix + "stock", d.sale.prefix + "users"}, user).Int()
	if err != nil || verdict == 0 {
		return false, err
	}
	_, outcome, err := d.queue.OfferNew(ctx, order{User: user}, 0, rdelayedqueue.WithID(user))
	return outcome == rdelayedqueue.Added, err
}

// hire starts a slow worker, which dies of its third order if it is mortal.
func (s *sale) hire(ctx context.Context, mortal bool) error {
	d, err := s.connect()
	if err != nil {
		return err
	}
	start := s.workers.Go // it ends with the context
	if mortal {
		start = func(work func()) { go work() } // it ends with the program: nobody waits for the dead
	}
	start(func() {
		defer d.leave()
		orders := 0
		err := d.queue.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[order]) error {
			if orders++; mortal && orders >= 3 {
				if orders == 3 {
					fmt.Printf("a worker got the order of %s, and dies\n", m.Value.User)
				}
				_ = d.rdb.Close() // for good: nobody acknowledges, and nobody renews
				return nil
			}
			return d.client.GetLock("user:"+m.Value.User).Do(ctx, func(context.Context) error {
				time.Sleep(10 * time.Millisecond) // writing takes its time
				s.write(m)
				return nil
			})
		})
		if err != nil {
			fmt.Println("a worker stopped:", err)
		}
	})
	return nil
}

// write notes an order, once however often it comes.
func (s *sale) write(m *rdelayedqueue.Message[order]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Attempt > 1 {
		s.again++
	}
	s.written[m.ID] = 1
}

// finish waits until all orders are written.
func (d *door) finish(ctx context.Context) error {
	for {
		s, err := d.queue.Stats(ctx)
		if err != nil || s == (rdelayedqueue.Stats{}) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sale) report(accepted int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("\n%24s %6d\n%24s %6d\n", "items", items, "orders accepted", accepted)
	fmt.Printf("%24s %6d\n%24s %6d\n", "orders written", len(s.written), "delivered again", s.again)
	if accepted != items || len(s.written) != items {
		return errors.New("the numbers do not agree")
	}
	return nil
}
