package rbarrier_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

// Three workers do each step together, wherever they run.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			if err := steps(ctx, client); err != nil {
				log.Print(err)
			}
		})
	}
	workers.Wait()
	// Output:
	// load
	// load
	// load
	// check
	// check
	// check
}

func steps(ctx context.Context, client *redlatch.Client) error {
	barrier := client.GetBarrier("steps", 3)
	for _, step := range []string{"load", "check"} {
		fmt.Println(step)
		if err := barrier.Await(ctx); err != nil {
			return err // rbarrier.ErrBroken if another one gave up or died
		}
	}
	return nil
}

// Two players start a game together, and stay until both have finished.
func ExampleDoubleBarrier() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	play := func() error {
		game := client.GetDoubleBarrier("game 42", 2)
		if err := game.Enter(ctx); err != nil {
			return err
		}
		fmt.Println("playing")
		if err := game.Leave(ctx); err != nil {
			return err
		}
		fmt.Println("over")
		return nil
	}
	var players sync.WaitGroup
	for range 2 {
		players.Go(func() {
			if err := play(); err != nil {
				log.Print(err)
			}
		})
	}
	players.Wait()
	// Output:
	// playing
	// playing
	// over
	// over
}
