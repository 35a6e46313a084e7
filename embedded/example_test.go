package embedded_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

// A test of a program that uses redlatch gives it a client of its own.
func Example() {
	closeOrders := func(ctx context.Context, client *redlatch.Client) error { // what is to be tested
		return client.GetLock("orders").Do(ctx, func(context.Context) error {
			fmt.Println("orders closed")
			return nil
		})
	}

	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err) // in a test: t.Fatal(err)
	}
	defer client.Close()
	if err := closeOrders(context.Background(), client); err != nil {
		log.Fatal(err)
	}
	// Output: orders closed
}

// Open takes the options of a client. Each call has an empty server of its own, so that tests do not meet.
func ExampleOpen() {
	client, err := embedded.Open(redlatch.WithNamePrefix("test:"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // ends the server too

	locked, err := client.GetLock("orders").IsLocked(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("locked:", locked)
	// Output: locked: false
}

// Several clients on one server compete like processes.
func ExampleStart() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	ctx := context.Background()
	first, err := redlatch.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer first.Close()
	second, err := redlatch.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()

	hold, err := first.GetLock("orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	_, err = second.GetLock("orders").TryLock(ctx)
	fmt.Println(err)
	// Output: rlock: try lock "orders": lock not acquired
}
