package redlatch_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

// The first program of README.md, on a server in this process.
func Example_open() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if err := closeOrders(context.Background(), server.URL()); err != nil {
		log.Fatal(err)
	}
	// Output: unpaid orders are closed
}

// snippet: closeOrders
func closeOrders(ctx context.Context, url string) error {
	client, err := redlatch.Open(ctx, url) // "redis://localhost:6379"; one client for the whole process
	if err != nil {
		return err
	}
	defer client.Close()

	hold, err := client.GetLock("orders").Lock(ctx) // waits until the lock is free or ctx is done
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx) // works although ctx is done

	return closeUnpaidOrders(hold.Context()) // this context ends when the lock is lost
}

// end snippet

func closeUnpaidOrders(ctx context.Context) error {
	fmt.Println("unpaid orders are closed")
	return ctx.Err()
}
