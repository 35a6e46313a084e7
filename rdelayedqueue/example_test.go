package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// Order is what the examples put into a queue.
type Order struct{ Number int }

// An order that nobody has paid is closed after a while.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")

	if _, err := orders.Offer(ctx, Order{Number: 42}, 50*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	err = orders.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[Order]) error {
		fmt.Println("close unpaid order", m.Value.Number)
		stop() // this example ends; a service would go on
		return nil
	}, rdelayedqueue.WithConcurrency(16))
	if err != nil {
		log.Fatal(err)
	}
	// Output: close unpaid order 42
}

func ExampleQueue_Offer() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")

	// Under an id of its own the job can be offered twice without harm, and be cancelled by whoever knows the order.
	for range 2 {
		_, outcome, err := orders.OfferNew(ctx, Order{Number: 42}, 15*time.Minute, rdelayedqueue.WithID("order-42"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(outcome)
	}
	paid, err := orders.Cancel(ctx, "order-42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("cancelled:", paid)
	// Output:
	// added
	// kept
	// cancelled: true
}

func ExampleQueue_Take() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	if _, err := orders.Offer(ctx, Order{Number: 42}, 0); err != nil {
		log.Fatal(err)
	}

	m, err := orders.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("order", m.Value.Number, "attempt", m.Attempt)
	if err := m.Nack(ctx, 10*time.Millisecond); err != nil { // it failed: again in 10 ms
		log.Fatal(err)
	}
	m, err = orders.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("order", m.Value.Number, "attempt", m.Attempt)
	if err := m.Ack(ctx); err != nil { // its work is done
		log.Fatal(err)
	}
	// Output:
	// order 42 attempt 1
	// order 42 attempt 2
}

func ExampleQueue_Consume() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	if _, err := orders.Offer(ctx, Order{Number: 42}, 0); err != nil {
		log.Fatal(err)
	}

	// A failed attempt is repeated after a pause; what fails each time is a dead letter in the end.
	err = orders.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[Order]) error {
		if m.Attempt < 3 {
			return errors.New("the warehouse does not answer")
		}
		fmt.Println("done in attempt", m.Attempt)
		stop()
		return nil
	}, rdelayedqueue.WithMaxAttempts(5), rdelayedqueue.WithBackoff(func(attempt int) time.Duration {
		return time.Duration(attempt) * 10 * time.Millisecond
	}))
	if err != nil {
		log.Fatal(err)
	}
	// Output: done in attempt 3
}

func ExampleQueue_All() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	for n := range 3 {
		if _, err := orders.Offer(ctx, Order{Number: n}, time.Duration(n+1)*time.Hour); err != nil {
			log.Fatal(err)
		}
	}
	for e, err := range orders.All(ctx, rdelayedqueue.Delayed) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("order", e.Value.Number, "is due in", time.Until(e.DueAt).Round(time.Hour))
	}
	// Output:
	// order 0 is due in 1h0m0s
	// order 1 is due in 2h0m0s
	// order 2 is due in 3h0m0s
}

func ExampleQueue_Dead() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	if _, err := orders.Offer(ctx, Order{Number: 42}, 0); err != nil {
		log.Fatal(err)
	}
	m, err := orders.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Reject(ctx, "no such order"); err != nil {
		log.Fatal(err)
	}

	dead, err := orders.Dead(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range dead {
		fmt.Println("order", e.Value.Number, e.State, "-", e.Error)
	}
	n, err := orders.RedriveAll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("due again:", n)
	// Output:
	// order 42 dead - no such order
	// due again: 1
}

// The orders of a customer are handled one at a time and in their order; those of other customers pass, the urgent ones first.
func ExampleWithGroup() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := redlatch.GetDelayedQueue[Order](client, "orders")

	_, err = orders.OfferBatch(ctx, []rdelayedqueue.Item[Order]{
		{Value: Order{1}, Group: "ada"}, {Value: Order{2}, Group: "ada"}, {Value: Order{3}, Group: "bob", Priority: 9},
	})
	if err != nil {
		log.Fatal(err)
	}
	first, err := orders.TakeBatch(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range first {
		fmt.Println("order", m.Value.Number)
	}
	if err := first[1].Ack(ctx); err != nil { // of ada
		log.Fatal(err)
	}
	next, err := orders.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("then order", next.Value.Number)
	// Output:
	// order 3
	// order 1
	// then order 2
}
