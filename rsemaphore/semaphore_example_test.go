package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rsemaphore"
)

// At most five jobs run at a time, in all processes together.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	jobs := client.GetSemaphore("jobs")
	if _, err := jobs.TrySetPermits(ctx, 5); err != nil { // the first process sets them
		log.Fatal(err)
	}
	if err := jobs.Acquire(ctx, 1); err != nil {
		log.Fatal(err)
	}
	defer jobs.Release(ctx, 1)
	left, err := jobs.Available(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("left for others:", left)
	// Output: left for others: 4
}

// Do gives the permits back, also if the function panics.
func ExampleSemaphore_Do() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	jobs := client.GetSemaphore("jobs")
	if _, err := jobs.TrySetPermits(ctx, 5); err != nil {
		log.Fatal(err)
	}
	err = jobs.Do(ctx, 2, func(ctx context.Context) error {
		left, err := jobs.Available(ctx)
		fmt.Println("left for others:", left)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: left for others: 3
}

// Who cannot wait for long says so.
func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	jobs := client.GetSemaphore("jobs")
	if _, err := jobs.TrySetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}

	ok, err := jobs.TryAcquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("two of three:", ok)
	ok, err = jobs.TryAcquire(ctx, 2, rsemaphore.WithWait(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("two more within 50 ms:", ok)
	// Output:
	// two of three: true
	// two more within 50 ms: false
}

// WithMax finds out who releases more than was taken.
func ExampleWithMax() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	jobs := client.GetSemaphore("jobs", rsemaphore.WithMax(5))
	if _, err := jobs.TrySetPermits(ctx, 5); err != nil {
		log.Fatal(err)
	}
	err = jobs.Release(ctx, 1)
	fmt.Println(errors.Is(err, rsemaphore.ErrOverRelease))
	// Output: true
}
