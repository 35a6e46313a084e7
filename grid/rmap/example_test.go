package rmap_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
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

	if err := addItem(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output: a1 Kyoto 3
}

func addItem(ctx context.Context, client *redlatch.Client) error {
	orders := rmap.New[string, order](client, "open orders")
	if err := orders.Set(ctx, "a1", order{"Kyoto", 2}); err != nil {
		return err
	}
	if _, err := orders.Update(ctx, "a1", func(o order, ok bool) (order, error) {
		o.Items++
		return o, nil
	}); err != nil {
		return err
	}
	for e, err := range orders.All(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(e.Key, e.Value.City, e.Value.Items)
	}
	return nil
}

// A change is seen at once by the client that made it.
func ExampleWithNear() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if err := changePrice(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output: 360 380
}

func changePrice(ctx context.Context, client *redlatch.Client) error {
	prices := rmap.New[string, int](client, "prices", rmap.WithNear(10_000), rmap.WithMaxStale(5*time.Second))
	if err := prices.Set(ctx, "tea", 360); err != nil {
		return err
	}
	before, _, err := prices.Get(ctx, "tea") // kept in the client once that has subscribed
	if err != nil {
		return err
	}
	if err := prices.Set(ctx, "tea", 380); err != nil {
		return err
	}
	after, _, err := prices.Get(ctx, "tea")
	if err != nil {
		return err
	}
	fmt.Println(before, after)
	return nil
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
