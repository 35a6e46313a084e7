package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// visibility is how long a worker that died keeps its orders. It is short, so that the example is. The default is 30 s.
const visibility = 2 * time.Second

// worker is a client of the queue, with connections of its own.
type worker struct {
	name   string
	shop   *shop
	rdb    *redis.Client
	client *redlatch.Client
	queue  *rdelayedqueue.Queue[order]
}

func hire(s *shop, name, url string) (*worker, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(options)
	client, err := redlatch.New(rdb, redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler))) // a dead one would complain
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	queue := redlatch.GetDelayedQueue[order](client, s.name, rdelayedqueue.WithVisibility(visibility))
	return &worker{name, s, rdb, client, queue}, nil
}

func (w *worker) leave() {
	w.client.Close()
	w.rdb.Close()
}

// expect has an order come back when its time to pay is over.
func (w *worker) expect(ctx context.Context, o order) error {
	_, err := w.queue.Offer(ctx, o, timeToPay, rdelayedqueue.WithID(o.ID))
	return err
}

// pay marks an order as paid, and cancels its job.
func (w *worker) pay(ctx context.Context, id string) error {
	w.shop.pay(id)
	ok, err := w.queue.Cancel(ctx, id)
	if ok {
		w.shop.say(w.name, "%s is paid, its job is cancelled", id)
	}
	return err
}

// work closes orders until ctx ends.
func (w *worker) work(ctx context.Context) error {
	return w.queue.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[order]) error {
		if w.shop.begin(m.ID) {
			w.shop.say(w.name, "got %s, and dies", m.ID)
			_ = w.rdb.Close() // for good: nobody acknowledges, nobody renews, and nothing is given back
			_ = w.client.Close()
			return nil
		}
		if m.Attempt > 1 {
			w.shop.say(w.name, "got %s again, attempt %d", m.ID, m.Attempt)
		}
		w.shop.close(m.ID)
		return nil
	}, rdelayedqueue.WithConcurrency(2), rdelayedqueue.WithPrefetch(0))
}

// finish waits until the queue is empty.
func (w *worker) finish(ctx context.Context) error {
	for {
		s, err := w.queue.Stats(ctx)
		if err != nil || s == (rdelayedqueue.Stats{}) {
			return err
		}
		w.shop.say(w.name, "%d orders wait for payment or a worker, %d are with one", s.Delayed+s.Ready, s.InFlight)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
