package rlatch_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch/embedded"
)

// Three workers, here goroutines, get ready; somebody waits for all of them.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ready := client.GetCountDownLatch("ready")
	if _, err := ready.TrySetCount(ctx, 3); err != nil { // before anybody awaits it
		log.Fatal(err)
	}
	for range 3 {
		go func() {
			if err := client.GetCountDownLatch("ready").CountDown(ctx); err != nil {
				log.Print(err)
			}
		}()
	}
	if err := ready.Await(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all are ready")
	// Output: all are ready
}

// A worker that is restarted says again that it is ready, and does not count again.
func ExampleLatch_CountDownOnce() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ready := client.GetCountDownLatch("ready")
	if _, err := ready.TrySetCount(ctx, 3); err != nil {
		log.Fatal(err)
	}

	for _, worker := range []string{"a", "b", "a"} {
		counted, err := ready.CountDownOnce(ctx, worker)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(worker, counted)
	}
	left, err := ready.Count(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("left:", left)
	// Output:
	// a true
	// b true
	// a false
	// left: 1
}
