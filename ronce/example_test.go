package ronce_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/ronce"
)

// Receipt is what a payment returns.
type Receipt struct{ Number int }

func charge(context.Context, string) (Receipt, error) {
	fmt.Println("charged")
	return Receipt{4711}, nil
}

// A webhook that is delivered twice charges once, whichever processes get it.
func handleTwice(ctx context.Context, client *redlatch.Client) error {
	receipts := redlatch.GetOnce[Receipt](client, "webhooks", ronce.WithTTL(24*time.Hour))
	for range 2 {
		receipt, shared, err := receipts.Do(ctx, "event 1", func(ctx context.Context) (Receipt, error) {
			return charge(ctx, "event 1")
		})
		if err != nil {
			return err
		}
		fmt.Println(receipt.Number, shared)
	}
	return nil
}

func Example() {
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := handleTwice(context.Background(), client); err != nil {
		log.Fatal(err)
	}
	// Output:
	// charged
	// 4711 false
	// 4711 true
}

// Order is what a user may have one of.
type Order struct{ Number int }

// A user who presses the button again, on whichever server, has one order.
func orderOnce(ctx context.Context, client *redlatch.Client, user string, place func(context.Context) (Order, error)) error {
	orders := redlatch.GetOnce[Order](client, "sale", ronce.WithTTL(30*24*time.Hour)) // longer than the sale
	order, before, err := orders.Do(ctx, user, place)
	if err != nil {
		return err
	}
	fmt.Println("order", order.Number, "placed before:", before)
	return nil
}

func ExampleOnce_Do() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	last := 0
	for _, user := range []string{"ada", "bob", "ada"} {
		if err := orderOnce(context.Background(), client, user, func(context.Context) (Order, error) {
			last++
			return Order{last}, nil
		}); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// order 1 placed before: false
	// order 2 placed before: false
	// order 1 placed before: true
}

// WithErrors keeps what fails, so that it is not tried again at once.
func ExampleWithErrors() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	pages := redlatch.GetOnce[string](client, "pages", ronce.WithErrors(time.Minute))
	for range 2 {
		_, shared, err := pages.Do(ctx, "http://example.org/", func(context.Context) (string, error) {
			return "", errors.New("no such host")
		})
		var kept *ronce.Error
		fmt.Println(shared, errors.As(err, &kept))
	}
	// Output:
	// false false
	// true true
}
