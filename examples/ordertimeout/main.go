// Ordertimeout closes orders that nobody paid in time and puts their stock back: the job that delayed queues are most used for.
//
//	go run ./examples/ordertimeout
//	go run ./examples/ordertimeout -redis redis://localhost:6379
//
// Each order is offered to a queue as it is placed, to come back after 2 s; who pays cancels the job. Three workers close what
// comes back. One of them dies in the middle of its first order: watch how another one gets that order when the
// visibility is over. The table at the end must add up, or the program ends with an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

const (
	orders      = 24
	timeToPay   = 2 * time.Second
	payingUsers = 3 // every so-manyth pays
)

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 18*time.Second)
	defer cancel()
	if err := run(ctx, *url); err != nil {
		log.Fatal("ordertimeout: ", err)
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
	s := &shop{name: "orders-" + uuid.NewString()[:8], stock: 100, start: time.Now(), orders: map[string]*order{}}
	desk, err := hire(s, "desk", url)
	if err != nil {
		return err
	}
	defer desk.leave()

	working, stop := context.WithCancel(ctx)
	defer stop()
	var staff sync.WaitGroup
	for _, name := range []string{"worker A", "worker B", "worker C"} {
		w, err := hire(s, name, url)
		if err != nil {
			return err
		}
		defer w.leave()
		staff.Go(func() { // ends with the context
			if err := w.work(working); err != nil && !errors.Is(err, redlatch.ErrClosed) { // the dead one's is closed
				s.say(name, "%v", err)
			}
		})
	}

	for i := 1; i <= orders; i++ {
		o := s.place(fmt.Sprintf("order-%02d", i), 1+i%3)
		if err := desk.expect(ctx, o); err != nil {
			return err
		}
	}
	for i := payingUsers; i <= orders; i += payingUsers {
		if err := desk.pay(ctx, fmt.Sprintf("order-%02d", i)); err != nil {
			return err
		}
	}
	if err := desk.finish(ctx); err != nil {
		return err
	}
	stop()
	staff.Wait()
	return s.report()
}
