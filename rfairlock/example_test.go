package rfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

// Customers are served in the order in which they came, whatever process or goroutine they belong to.
func Example() {
	ctx := context.Background()
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := redlatch.Open(ctx, server.URL()) // in production: "redis://..."
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
	for i, name := range []string{"Ada", "Bob", "Cleo"} {
		customers.Go(func() {
			err := counter.Do(ctx, func(context.Context) error {
				fmt.Println("served:", name)
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
		awaitCustomers(ctx, server.Addr(), i+1) // they come one after another
	}
	if err := clerk.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	customers.Wait()
	// Output:
	// served: Ada
	// served: Bob
	// served: Cleo
}

// awaitCustomers waits until so many stand in the queue.
func awaitCustomers(ctx context.Context, addr string, n int) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for range time.Tick(time.Millisecond) {
		waiting, err := rdb.LLen(ctx, "redisson_lock_queue:{counter}").Result()
		if err != nil {
			log.Fatal(err)
		}
		if waiting >= int64(n) {
			return
		}
	}
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
