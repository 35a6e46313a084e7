package rtopic_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rtopic"
)

// Price is a value of a topic.
type Price struct {
	Name  string
	Cents int
}

// Prices are followed until the first of zero.
func follow(sub *rtopic.Subscription[Price]) error {
	for price, err := range sub.All() {
		var gap *rtopic.Gap
		switch {
		case errors.As(err, &gap): // values are missing: read anew what they were about
			fmt.Println("read all prices again")
		case err != nil: // a value that cannot be decoded, or the client has closed
			return err
		case price.Cents == 0:
			return nil
		default:
			fmt.Println(price.Name, price.Cents)
		}
	}
	return nil // the context has ended
}

// Every process that subscribes to a topic receives the values that are published to it.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	prices := redlatch.GetTopic[Price](client, "prices")
	sub, err := prices.Subscribe(ctx) // until ctx ends, or Close
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	for _, price := range []Price{{"tea", 250}, {"milk", 99}, {}} { // in any process
		if _, err := prices.Publish(ctx, price); err != nil {
			log.Fatal(err)
		}
	}
	if err := follow(sub); err != nil {
		log.Fatal(err)
	}
	// Output:
	// tea 250
	// milk 99
}

// A pattern topic receives the values of all topics whose names match, each with the name.
func ExamplePatternTopic() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	text := rtopic.WithCodec(codec.Text{}) // as Redisson's StringCodec
	sub, err := redlatch.GetPatternTopic[string](client, "room.*", text).Subscribe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := redlatch.GetTopic[string](client, "room.7", text).Publish(ctx, "hello"); err != nil {
		log.Fatal(err)
	}
	for event, err := range sub.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Topic, event.Value)
		sub.Close() // which ends the loop
	}
	// Output: room.7 hello
}
