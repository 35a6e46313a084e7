package rlatch_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
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

// Three workers begin together. Each sets the count, and one that restarts later begins at once.
func ExampleLatch_TrySetCountOnce() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var workers sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		workers.Go(func() {
			if err := begins(ctx, client, name); err != nil {
				log.Print(err)
			}
		})
	}
	workers.Wait()
	fmt.Println("all have begun")
	if err := begins(ctx, client, "b"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("b has begun again")
	// Output:
	// all have begun
	// b has begun again
}

func begins(ctx context.Context, client *redlatch.Client, worker string) error {
	ready := client.GetCountDownLatch("ready")
	if _, err := ready.TrySetCountOnce(ctx, 3, time.Hour); err != nil { // it stays open for an hour
		return err
	}
	if _, err := ready.CountDownOnce(ctx, worker); err != nil {
		return err
	}
	return ready.Await(ctx)
}
