package rratelimiter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rratelimiter"
)

// greet greets a user, unless that user has been greeted too often.
func greet(ctx context.Context, limiter *rratelimiter.Limiter, user string) error {
	res, err := limiter.Allow(ctx, user, 1)
	switch {
	case err != nil:
		return err
	case !res.Allowed:
		fmt.Println("try again in", res.RetryAfter.Round(time.Second))
	default:
		fmt.Println("hello,", user, "and", res.Remaining, "more")
	}
	return nil
}

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	limiter := client.GetRateLimiter("api", rratelimiter.Per(2, time.Minute))
	for range 3 {
		if err := greet(ctx, limiter, "ann"); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// hello, ann and 1 more
	// hello, ann and 0 more
	// try again in 30s
}

// A service that allows two calls a minute, however they are spread.
func ExampleWindow() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	limiter := client.GetRateLimiter("api", rratelimiter.Window(2, time.Minute))
	for range 3 {
		if err := greet(ctx, limiter, "ann"); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// hello, ann and 1 more
	// hello, ann and 0 more
	// try again in 1m0s
}

// Wait keeps a worker within the rate of a service that it calls.
func ExampleLimiter_Wait() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	limiter := client.GetRateLimiter("mail provider", rratelimiter.Per(1000, time.Second), rratelimiter.WithBurst(1))
	for _, to := range []string{"ann", "bob"} {
		if err := limiter.Wait(ctx, "all", 1); err != nil {
			log.Fatal(err)
		}
		fmt.Println("mail to", to)
	}
	// Output:
	// mail to ann
	// mail to bob
}
