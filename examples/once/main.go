// Once receives webhooks: each event is delivered several times, at once and again later, to two servers, and is handled once.
//
//	go run ./examples/once
//
// Watch that all deliveries of an event get the same receipt, whichever server they reach. The handling of event 2 fails at first: that
// delivery gets status 500, and another one handles the event. The program ends with an error if an event was handled twice, or if two
// receipts of it differ. The servers are in webhooks.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

const events, deliveries = 3, 8 // of each event at once

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("once: ", err) //nolint:gocritic // the context ends with the process
	}
}

func run(ctx context.Context) error {
	redis, err := embedded.Start() // in production: the Redis that all servers have
	if err != nil {
		return err
	}
	defer redis.Close()
	var b bank
	var urls []string
	for range 2 { // as if they were processes: each has a client of its own
		client, err := redlatch.Open(ctx, redis.URL())
		if err != nil {
			return err
		}
		defer client.Close()
		server := httptest.NewServer(webhooks(client, &b))
		defer server.Close()
		urls = append(urls, server.URL)
	}
	receipts := map[int]map[string]int{} // of each event: receipt -> deliveries that got it
	for _, wave := range []string{"at once", "again, later"} {
		answers := make(chan answer)
		for n := range events * deliveries {
			go func() { answers <- deliver(ctx, urls[n/events%2], n%events+1) }() // ends with its answer
		}
		for range events * deliveries {
			a := <-answers
			if a.err != nil {
				return a.err
			}
			if receipts[a.event] == nil {
				receipts[a.event] = map[string]int{}
			}
			receipts[a.event][a.receipt]++
		}
		fmt.Printf("%d deliveries of each event %s: receipts %v\n", deliveries, wave, receipts)
	}
	for event, of := range receipts {
		if len(of) != 1 {
			return fmt.Errorf("event %d has %d receipts", event, len(of))
		}
	}
	if n := b.charges.Load(); n != events {
		return fmt.Errorf("%d events were charged %d times", events, n)
	}
	fmt.Printf("%d events were charged once each.\n", events)
	return nil
}

// answer is what came of a delivery.
type answer struct {
	event   int
	receipt string
	err     error
}

// deliver sends an event until a server has received it, as a payment provider does.
func deliver(ctx context.Context, url string, event int) answer {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/?event=%d", url, event), nil)
		if err != nil {
			return answer{err: err}
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return answer{err: err}
		}
		body, err := io.ReadAll(response.Body)
		err = errors.Join(err, response.Body.Close())
		if err != nil || response.StatusCode == http.StatusOK {
			return answer{event, string(body), err}
		}
		fmt.Printf("event %d: status %d, and is delivered again\n", event, response.StatusCode)
	}
}
