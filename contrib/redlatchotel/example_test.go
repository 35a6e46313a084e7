package redlatchotel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchotel"
	"github.com/redlatch/redlatch/embedded"
)

func Example() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := traced(context.Background(), server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println("traced")
	// Output: traced
}

func traced(ctx context.Context, url string) (*redlatch.Client, error) {
	telemetry, err := redlatchotel.New(redlatchotel.WithNames("orders")) // only these names become attributes of metrics
	if err != nil {
		return nil, err
	}
	client, err := redlatch.Open(ctx, url, redlatch.WithObserver(telemetry.Observer()))
	if err != nil {
		return nil, err
	}
	telemetry.Watch(client) // what it holds and waits for
	return client, nil
}
