package rmap_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rmap"
)

type order struct {
	City  string `json:"city"`
	Items int    `json:"items"`
}

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	orders := rmap.New[string, order](client, "orders")
	if err := orders.Set(ctx, "a1", order{"Kyoto", 2}); err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Update(ctx, "a1", func(o order, ok bool) (order, error) {
		o.Items++
		return o, nil
	}); err != nil {
		log.Fatal(err)
	}
	for e, err := range orders.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Key, e.Value.City, e.Value.Items)
	}
	// Output: a1 Kyoto 3
}

// A number for each user, counted by Redis.
func ExampleMap_Add() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	visits := rmap.New[string, int](client, "visits")
	for range 2 {
		n, err := visits.Add(ctx, "ann", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n)
	}
	// Output:
	// 1
	// 2
}
