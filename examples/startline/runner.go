package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch"
)

// run is a runner's part.
func run(ctx context.Context, url, race, name string) error {
	client, err := redlatch.Open(ctx, url, redlatch.WithNamePrefix(race))
	if err != nil {
		return err
	}
	defer client.Close()

	time.Sleep(rand.N(time.Second)) // tie the shoes
	ready := client.GetCountDownLatch("ready")
	says := 1
	if name == "B" {
		says = 2
	}
	for range says {
		counted, err := ready.CountDownOnce(ctx, name)
		if err != nil {
			return err
		}
		fmt.Printf("%s is ready, counted: %t\n", name, counted)
	}
	if err := client.GetCountDownLatch("gun").Await(ctx); err != nil {
		return err
	}
	fmt.Printf("%s starts at %s\n", name, time.Now().Format("05.000"))
	time.Sleep(300*time.Millisecond + rand.N(700*time.Millisecond)) // run
	_, err = client.GetCountDownLatch("finished").CountDownOnce(ctx, name)
	return err
}
