package redlatch_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

// Who holds a lock, and what this process holds.
func Example_inspect() {
	client, err := embedded.Open(redlatch.WithClientName("web-3"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	hold, err := client.GetLock("orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	if err := whoHasIt(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output:
	// orders is locked: true, by this client: true, waiting: 0
	// rlock orders
}

func whoHasIt(ctx context.Context, client *redlatch.Client) error {
	info, err := client.GetLock("orders").Info(ctx) // also its owner, its levels, and what is left of the lease
	if err != nil {
		return err
	}
	fmt.Printf("orders is locked: %t, by this client: %t, waiting: %d\n", info.Locked, info.Client == client.ID(), info.Waiting)

	for _, h := range client.Holds() { // what this process holds: also since when, and how often it was renewed
		fmt.Println(h.Kind, h.Name)
	}
	return nil
}
