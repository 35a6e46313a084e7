package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys, which are in one slot of a cluster, and the states of an order.
const (
	stockKey  = "{shop}:stock"
	ordersKey = "{shop}:orders"
	dueKey    = "{shop}:due"

	paidState   = "paid"
	closedState = "closed"
)

// shop is the stock and the orders, in Redis.
type shop struct{ rdb *redis.Client }

// reserve takes an item out of stock for an order. Called again for the order, it says the same.
func (s *shop) reserve(ctx context.Context, order string) (bool, error) {
	n, err := reserveScript.Run(ctx, s.rdb, []string{stockKey, ordersKey, dueKey}, order, timeToPay.Milliseconds()).Int()
	return n == 1, err
}

// settle turns a reservation into an order that is paid or closed, and reports whether it is paid, or this call has closed it. One that
// is closed has its item back in stock, by the same script: so it is there once, however often a run is repeated.
func (s *shop) settle(ctx context.Context, order, state string) (bool, error) {
	n, err := settleScript.Run(ctx, s.rdb, []string{stockKey, ordersKey, dueKey}, order, state).Int()
	return n == 1, err
}

// overdue returns the reservations whose time to pay is over, by the clock of Redis.
func (s *shop) overdue(ctx context.Context) ([]string, error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	return s.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: dueKey, ByScore: true, Start: "-inf", Stop: now.UnixMilli()}).Result()
}

// count counts the orders of each state, and the stock, at one moment, and returns an error if items are missing.
func (s *shop) count(ctx context.Context) (states map[string]int, err error) {
	pipe := s.rdb.TxPipeline()
	stock, orders := pipe.Get(ctx, stockKey), pipe.HVals(ctx, ordersKey)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	states = map[string]int{}
	for _, state := range orders.Val() {
		states[state]++
	}
	left, err := stock.Int()
	if sum := left + states["reserved"] + states[paidState]; err == nil && (left < 0 || sum != items) {
		err = fmt.Errorf("%d in stock and %v are not %d items", left, states, items)
	}
	return states, err
}

// awaitClosed waits until no order is open.
func (s *shop) awaitClosed(ctx context.Context) error {
	for {
		states, err := s.count(ctx)
		if err != nil || states["reserved"] == 0 {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// check compares what is in Redis with what buyers and staff were told.
func (s *shop) check(ctx context.Context, paid, closed int, again bool) error {
	states, err := s.count(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d items: %d orders paid, %d closed; a run was repeated: %t\n", items, states[paidState], states[closedState], again)
	if states[paidState] != paid || states[closedState] != closed || !again {
		return fmt.Errorf("%d buyers paid in time, %d orders were closed, and a run was to be repeated", paid, closed)
	}
	return nil
}
