package rid_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rid"
)

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	first, err := number(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	second, err := number(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(fmt.Sprint(first)), second-first)
	// Output: 16 1
}

// number returns the number of an order.
func number(ctx context.Context, client *redlatch.Client) (int64, error) {
	orders := client.GetIDGenerator("order", rid.WithBlock(1000))
	return orders.Next(ctx)
}

// An id with a time tells when it was made.
func ExampleWithTimePrefix() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	epoch := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	orders := client.GetIDGenerator("order", rid.WithTimePrefix(32), rid.WithEpoch(epoch))
	id, err := orders.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	made := epoch.Add(time.Duration(id>>32) * time.Second)
	fmt.Println(time.Since(made) < time.Minute, id&(1<<32-1))
	// Output: true 0
}
