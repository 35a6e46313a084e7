package ratomic_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/ratomic"
)

// A stock that is never sold twice.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	stock := ratomic.NewInt64(client, "stock")
	if err := stock.Store(ctx, 5); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		left, ok, err := stock.AddWithin(ctx, -2, 0, math.MaxInt64)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(left, ok)
	}
	// Output:
	// 3 true
	// 1 true
	// 1 false
}

func ExampleFloat64() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	balance := ratomic.NewFloat64(client, "balance")
	sum, err := balance.Add(ctx, 12.5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
	// Output: 12.5
}
