package rfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

// Customers are served in the order in which they came, whatever process or goroutine they belong to. These come at about the same time.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	counter := client.GetFairLock("counter")

	clerk, err := counter.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var customers sync.WaitGroup
	for _, name := range []string{"Ada", "Bob", "Cleo"} {
		customers.Go(func() {
			err := counter.Do(ctx, func(context.Context) error {
				fmt.Println("served:", name)
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	if err := clerk.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	customers.Wait()
	// Unordered output:
	// served: Ada
	// served: Bob
	// served: Cleo
}

// A waiter that gives up leaves the queue at once.
func ExampleLock_TryLock() {
	ctx := context.Background()
	client, err := embedded.Open(redlatch.WithFairWaitTimeout(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	counter := client.GetFairLock("counter")

	hold, err := counter.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	_, err = counter.TryLock(ctx, rlock.WithWait(20*time.Millisecond))
	fmt.Println("went away:", errors.Is(err, rlock.ErrNotAcquired))
	// Output: went away: true
}
