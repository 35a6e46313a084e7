package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

// The program that docs/migrating.md shows beside those with other libraries.
func Example_migrating() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	closeOrder := func(ctx context.Context) error { return work(ctx, "order 42 is closed") }
	if err := closeOrder42(context.Background(), client, closeOrder); err != nil {
		log.Fatal(err)
	}
	err = client.GetLock("order:42").Do(context.Background(), func(context.Context) error {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer stop()
		return closeOrder42(ctx, client, closeOrder)
	})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// order 42 is closed
	// true
}

var errBusy = errors.New("order is busy")

func closeOrder42(ctx context.Context, client *redlatch.Client, closeOrder func(context.Context) error) error {
	// snippet: closeOrder42
	hold, err := client.GetLock("order:42").Lock(ctx, rlock.WithWait(5*time.Second))
	if errors.Is(err, rlock.ErrNotAcquired) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx) // works although ctx is done

	return closeOrder(hold.Context()) // renewed for as long as it takes; the context ends if the lock is lost
	// end snippet
}
