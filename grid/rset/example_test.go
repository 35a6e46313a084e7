package rset_test

import (
	"context"
	"fmt"
	"log"
	"time"

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

	buyers := rset.New[string](client, "buyers")
	n, err := buyers.Add(ctx, "ann", "bob", "ann")
	if err != nil {
		log.Fatal(err)
	}
	ok, err := buyers.Has(ctx, "bob")
	fmt.Println(n, ok, err)
	// Output: 2 true <nil>
}

// A message is handled once a day, however often it comes.
func ExampleExpiring() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	seen := rset.NewExpiring[string](client, "seen")
	for range 2 {
		fresh, err := seen.Add(ctx, "message 42", 24*time.Hour)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(fresh)
	}
	// Output:
	// true
	// false
}
