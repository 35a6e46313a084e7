package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlock"
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
	if err := whatIsThere(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output:
	// orders is locked: true, by this client: true, waiting: 0
	// lock orders
	// lock orders, held by this client: true
}

// askTheOthers is not run by the example: a client listens once it has held something for three seconds.
func askTheOthers(ctx context.Context, client *redlatch.Client) error {
	clients, err := client.Clients(ctx)
	if err != nil {
		return err
	}
	for _, c := range clients {
		report, err := client.Ask(ctx, c.ID)
		if errors.Is(err, redlatch.ErrNotListening) {
			continue // it is gone, or too busy
		}
		if err != nil {
			return err
		}
		for _, h := range report.Holds {
			fmt.Printf("%q holds %s %q since %s, acquired at %q\n", c.ID, h.Kind, h.Name, h.Since, h.Site)
		}
	}
	return nil
}

var _ = askTheOthers

func whatIsThere(ctx context.Context, client *redlatch.Client) error {
	for o, err := range client.Objects(ctx, "ord*") {
		if err != nil {
			return err
		}
		switch info := o.Info.(type) {
		case rlock.Info:
			fmt.Printf("%s %s, held by this client: %t\n", o.Kind, o.Name, info.Client == client.ID())
		case rfairlock.Info: // and so on: see redlatch.Object
			fmt.Printf("%s %s, waiting: %d\n", o.Kind, o.Name, len(info.Queue))
		}
	}
	return nil
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
