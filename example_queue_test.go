package redlatch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// Order is what the queue of the example holds.
type Order struct{ Number int }

// An order that nobody has paid in time is closed, by whichever process is there then.
func Example_delayedQueue() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx, stop := context.WithCancel(context.Background())
	closeUnpaid := func(_ context.Context, o Order) error {
		fmt.Println("order", o.Number, "is closed")
		stop() // this example ends; a service would go on
		return nil
	}
	if err := offerAndConsume(ctx, client, closeUnpaid); err != nil {
		log.Fatal(err)
	}
	// Output: order 42 is closed
}

func offerAndConsume(ctx context.Context, client *redlatch.Client, closeUnpaid func(context.Context, Order) error) error {
	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	if _, err := orders.Offer(ctx, Order{Number: 42}, 50*time.Millisecond); err != nil { // in a shop: 15*time.Minute
		return err
	}

	handle := func(ctx context.Context, m *rdelayedqueue.Message[Order]) error { return closeUnpaid(ctx, m.Value) }
	return orders.Consume(ctx, handle, rdelayedqueue.WithConcurrency(16)) // in any process; until ctx ends
}
