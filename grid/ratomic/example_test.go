package ratomic_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/redlatch/redlatch"
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

	if err := ratomic.NewInt64(client, "stock").Store(ctx, 5); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := sell(ctx, client, 2); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// sold, and 3 are left
	// sold, and 1 are left
	// there are only 1
}

func sell(ctx context.Context, client *redlatch.Client, n int64) error {
	stock := ratomic.NewInt64(client, "stock")
	left, ok, err := stock.AddWithin(ctx, -n, 0, math.MaxInt64) // never below 0
	if err != nil {
		return err
	}
	if !ok {
		fmt.Println("there are only", left)
		return nil
	}
	fmt.Println("sold, and", left, "are left")
	return nil
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
