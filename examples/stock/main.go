// Stock sells 20 items whose buyers have a second to pay. Who does not pay in time loses the reservation, and the item is back in stock.
//
//	go run ./examples/stock
//
// Stock and orders are in Redis, and change by scripts, so that an order is either paid or closed, once. A job of a scheduler closes
// what is overdue. Watch the process that dies in the middle of it: another one repeats the run, as attempt 2, and closes only what is
// still open. What came back is sold to others. The program ends with an error if an item was sold twice, or got lost, at any moment. It
// takes about 5 s. Compare ordertimeout, which has a message of a queue for each order, and flashsale, which has no time to pay.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/embedded"
)

const (
	items     = 20
	timeToPay = time.Second
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("stock: ", err) //nolint:gocritic // the context ends with the process
	}
}

func run(ctx context.Context) error {
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		return err
	}
	s := &shop{redis.NewClient(options)}
	defer s.rdb.Close()
	if err := s.rdb.Set(ctx, stockKey, items, 0).Err(); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var all staff
	for _, name := range []string{"A", "B", "C"} {
		if err := all.hire(working, name, server.URL()); err != nil {
			return err
		}
	}
	paid := 0
	for wave, paying := range []int{8, items} { // of the first wave 8 pay
		n, err := s.sell(ctx, wave+1, paying)
		if err != nil {
			return err
		}
		paid += n
		if err := s.awaitClosed(ctx); err != nil {
			return err
		}
	}
	stop()
	all.workers.Wait()
	return s.check(ctx, paid, int(all.closed.Load()), all.again.Load())
}

// sell has 60 buyers come at once. So many of those who get an item pay; it returns how many were in time.
func (s *shop) sell(ctx context.Context, wave, paying int) (paid int, err error) {
	orders := make(chan string)
	errs := make(chan error, 60)
	for n := range cap(errs) {
		go func() { // ends with its answer
			order := fmt.Sprintf("%d-%02d", wave, n)
			ok, err := s.reserve(ctx, order)
			if ok {
				orders <- order
			}
			errs <- err
		}()
	}
	accepted := 0
	for left := cap(errs); left > 0; {
		select {
		case order := <-orders:
			if accepted++; accepted > paying {
				continue
			}
			ok, err := s.settle(ctx, order, paidState)
			if err != nil {
				return 0, err
			}
			if ok {
				paid++
			}
		case err := <-errs:
			if left--; err != nil {
				return 0, err
			}
		}
	}
	fmt.Printf("wave %d: of %d buyers %d got an item, and %d of these paid\n", wave, cap(errs), accepted, paid)
	return paid, nil
}
