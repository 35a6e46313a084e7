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

func ExamplePermitSemaphore() {
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	downloads := client.GetPermitSemaphore("downloads")
	if _, err := downloads.TrySetPermits(ctx, 5); err != nil { // the first process sets them
		log.Fatal(err)
	}
	permit, err := downloads.Acquire(ctx) // waits; the permit is renewed until Release, or comes back if this process dies
	if err != nil {
		log.Fatal(err)
	}
	left, err := downloads.Available(permit.Context()) // work under the permit's context: it ends when the permit is lost
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("downloading; more may start:", left)
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: downloading; more may start: 4
}

func ExamplePermitSemaphore_Do() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	downloads := client.GetPermitSemaphore("downloads")
	if _, err := downloads.TrySetPermits(ctx, 5); err != nil {
		log.Fatal(err)
	}
	err = downloads.Do(ctx, func(ctx context.Context) error { // ctx ends when the permit is lost
		left, err := downloads.Available(ctx)
		fmt.Println("downloading; more may start:", left)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: downloading; more may start: 4
}

func ExamplePermitSemaphore_TryAcquire_timeout() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	one := client.GetPermitSemaphore("one")
	if err := one.SetPermits(ctx, 1); err != nil {
		log.Fatal(err)
	}
	held, err := one.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = one.TryAcquire(ctx, rsemaphore.WithWait(20*time.Millisecond))
	fmt.Println(errors.Is(err, rsemaphore.ErrNotAcquired))
	fmt.Println(err)
	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true
	// rsemaphore: try acquire "one": permit not acquired
}

func ExamplePermitSemaphore_AcquireN() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	cores := client.GetPermitSemaphore("cores")
	if err := cores.SetPermits(ctx, 8); err != nil {
		log.Fatal(err)
	}
	permits, err := cores.AcquireN(ctx, 3) // all three, or none
	if err != nil {
		log.Fatal(err)
	}
	for _, permit := range permits { // each is released by itself
		if err := permit.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	left, err := cores.Available(ctx)
	fmt.Println(len(permits), left, err)
	// Output: 3 8 <nil>
}

func ExamplePermit_Context() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	slots := client.GetPermitSemaphore("slots")
	if err := slots.SetPermits(ctx, 1); err != nil {
		log.Fatal(err)
	}
	permit, err := slots.Acquire(ctx, rsemaphore.WithFixedLease(50*time.Millisecond)) // not renewed
	if err != nil {
		log.Fatal(err)
	}
	<-permit.Context().Done() // the work took too long
	fmt.Println(context.Cause(permit.Context()))
	fmt.Println(errors.Is(permit.Release(ctx), rsemaphore.ErrNotHeld))
	// Output:
	// rsemaphore: permit "slots": permit lost: the lease ended
	// true
}
