package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/rlock"
)

// cleanUp closes the unpaid orders, unless another worker is at it. All workers call it at the same time.
func (w *worker) cleanUp(ctx context.Context, s *shop) error {
	lock := w.client.GetLock("clean-up")

	err := lock.Do(ctx, func(ctx context.Context) error { // this ctx ends when the lock is lost
		w.say("got the lock")
		return w.closeOrders(ctx, s)
	}, rlock.WithWait(0))

	if errors.Is(err, rlock.ErrNotAcquired) {
		left, err := lock.TTL(ctx)
		w.say("turned away; the lease of the lock has %s left", seconds(left))
		return err
	}
	return err
}

// closeOrders closes the orders that are unpaid now. Two workers that do this at the same time close orders twice.
func (w *worker) closeOrders(ctx context.Context, s *shop) error {
	orders, err := s.unpaid(ctx)
	if err != nil {
		return err
	}
	for _, o := range orders {
		if err := pause(ctx, 30*time.Millisecond); err != nil { // the work: tell the bank, write a letter
			return err
		}
		if s.crashes(ctx, o) {
			w.say("crashes in the middle of order %d", o.id)
			return w.crash()
		}
		if err := s.close(ctx, o); err != nil {
			return err
		}
	}
	w.say("closed %s", list(orders))
	return nil
}
