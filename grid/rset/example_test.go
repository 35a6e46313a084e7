package rset_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rset"
)

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if err := addBuyers(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output: 2 true
}

func addBuyers(ctx context.Context, client *redlatch.Client) error {
	buyers := rset.New[string](client, "buyers")
	n, err := buyers.Add(ctx, "ann", "bob", "ann")
	if err != nil {
		return err
	}
	ok, err := buyers.Has(ctx, "bob")
	fmt.Println(n, ok)
	return err
}

// A message is handled once a day, however often it comes.
func ExampleExpiring() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for range 2 {
		if err := receive(ctx, client, "message 42"); err != nil {
			log.Fatal(err)
		}
	}
	// Output: handle message 42
}

func receive(ctx context.Context, client *redlatch.Client, message string) error {
	seen := rset.NewExpiring[string](client, "seen")
	fresh, err := seen.Add(ctx, message, 24*time.Hour)
	if err != nil || !fresh {
		return err
	}
	fmt.Println("handle", message)
	return nil
}
