// Flashsale sells 100 items to 10,000 buyers who come at once, each of whom may have one.
//
//	go run ./examples/flashsale
//	go run ./examples/flashsale -redis redis://localhost:6379
//
// One script decides about stock and the one order for each user, so that nothing is oversold however many ask. What it
// accepts goes through a queue to slow workers, each of which writes an order under a lock for its user. One worker dies in the
// middle: watch that every accepted order is written even so. The program ends with an error if an item was sold twice,
// a user has two orders, or an order is missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/embedded"
)

const (
	items  = 100
	buyers = 10_000
	users  = 5_000 // each comes twice
)

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 18*time.Second)
	defer cancel()
	if err := run(ctx, *url); err != nil {
		log.Fatal("flashsale: ", err)
	}
}

func run(ctx context.Context, url string) error {
	if url == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		url = server.URL()
	}
	s := &sale{prefix: "flashsale:{" + uuid.NewString()[:8] + "}:", url: url, written: map[string]int{}}
	door, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer door.leave()
	defer s.clear(context.WithoutCancel(ctx), door)

	working, stop := context.WithCancel(ctx)
	defer stop()
	for n := range 3 {
		if err := s.hire(working, n == 0); err != nil {
			return err
		}
	}
	start := time.Now()
	accepted, err := rush(ctx, door)
	if err != nil {
		return err
	}
	fmt.Printf("%d buyers came in %s; %d were accepted\n", buyers, time.Since(start).Round(time.Millisecond), accepted)
	if err := door.finish(ctx); err != nil {
		return err
	}
	stop()
	s.workers.Wait()
	return s.report(int(accepted))
}

// rush has all buyers come at once.
func rush(ctx context.Context, d *door) (int64, error) {
	var accepted atomic.Int64
	var failed sync.Map
	var crowd sync.WaitGroup
	for n := range buyers {
		crowd.Go(func() {
			ok, err := d.buy(ctx, fmt.Sprintf("user-%04d", n%users))
			if err != nil {
				failed.Store("error", err)
			}
			if ok {
				accepted.Add(1)
			}
		})
	}
	crowd.Wait()
	if err, ok := failed.Load("error"); ok {
		return 0, errors.Join(errors.New("a buyer was not served"), err.(error)) //nolint:forcetypeassert // nothing else is stored
	}
	return accepted.Load(), nil
}
