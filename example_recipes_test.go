package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlock"
)

// A service answers 409 while another request holds the order's lock.
func Example_conflict() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	pay := payHandler(client, time.Second)
	ask := func() int {
		w := httptest.NewRecorder()
		pay(w, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
		return w.Code
	}

	fmt.Println(ask())
	err = client.GetLock("order:42").Do(context.Background(), func(context.Context) error {
		fmt.Println(ask())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// order 42 is paid
	// 204
	// 409
}

// snippet: payHandler
func payHandler(client *redlatch.Client, wait time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := client.GetLock("order:42").Do(r.Context(), payOrder, rlock.WithWait(wait))
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrUnknown): // Redis did not answer
			w.WriteHeader(http.StatusServiceUnavailable)
		case errors.Is(err, rlock.ErrNotAcquired): // another request holds the lock
			w.WriteHeader(http.StatusConflict)
		default:
			log.Print(err)
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
}

// end snippet

func payOrder(ctx context.Context) error { return work(ctx, "order 42 is paid") }

// A service ends on SIGTERM: its consumer finishes what it began, then the client releases what is still held.
func Example_shutdown() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	if _, err := orders.Offer(context.Background(), Order{Number: 42}, 0); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	handle := func(_ context.Context, m *rdelayedqueue.Message[Order]) error {
		stop() // as a signal would
		fmt.Println("order", m.Value.Number, "is closed")
		return nil
	}
	if err := serve(ctx, client, handle); err != nil {
		log.Fatal(err)
	}
	// Output: order 42 is closed
}

// handler is what a consumer calls.
type handler = func(context.Context, *rdelayedqueue.Message[Order]) error

// snippet: serve
func serve(ctx context.Context, client *redlatch.Client, handle handler) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	orders := redlatch.GetDelayedQueue[Order](client, "orders")
	err := orders.Consume(ctx, handle) // after the signal: claims nothing more, and waits for running handlers
	return errors.Join(err, client.Close())
}

// end snippet

// One of the processes that campaign leads.
func Example_leader() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	err = campaign(ctx, client, func(ctx context.Context, term int64) error {
		fmt.Println("leading:", ctx.Err() == nil, term > 0)
		stop() // this example ends; a leader would go on until ctx ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading: true true
	// <nil>
}

// snippet: campaign
func campaign(ctx context.Context, client *redlatch.Client, lead func(ctx context.Context, term int64) error) error {
	election := client.GetElection("scheduler")
	return election.Run(ctx, lead, relection.WithValue("web-3:8080")) // calls lead whenever this process leads, until ctx ends
}

// end snippet

// A process that restarts takes its lock back without waiting for the lease of the process before.
func Example_restart() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	before, err := client.GetLock("import").Lock(ctx) // by a process that died since
	if err != nil {
		log.Fatal(err)
	}
	saved := before.Owner()
	save := func(owner string) error {
		fmt.Println("a new owner:", owner != saved)
		return nil
	}
	if err := importAgain(ctx, client, saved, save); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a new owner: true
	// imported
}

// snippet: importAgain
func importAgain(ctx context.Context, client *redlatch.Client, saved string, save func(owner string) error) error {
	var opts []rlock.Option
	if saved != "" { // what hold.Owner was before the restart
		opts = append(opts, rlock.WithTakeOver(saved))
	}
	hold, err := client.GetLock("import").Lock(ctx, opts...)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	if err := save(hold.Owner()); err != nil { // for the next start
		return err
	}
	return work(hold.Context(), "imported")
}

// end snippet
