// Worker is a tutorial of background jobs for those who know asynq or River: three kinds of task, submitted here and done there.
//
//	go run ./examples/worker
//	go run ./examples/worker -redis redis://localhost:6379
//
// tasks.go has the tasks. submit is the side of a web server: mails, of which a password reset goes before newsletters, and invoices, those
// of a customer one at a time and in order. work is the side of the workers: a handler for each task, a line of log around each attempt, and
// an end that leaves nothing half done. operate waits for the result of a report. A mail server that is busy twice, and a card that has
// expired, show what becomes of failures: a mail is tried again; an invoice fails for good, until somebody mends the cause and redrives it.
//
// It takes about two seconds; the program ends with an error if something was not done, done twice, or out of order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rexecutor"
)

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	flag.Parse()
	// Ctrl-C and SIGTERM, which Kubernetes sends, end the workers too, when their handlers are done.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	err := run(ctx, *url)
	cancel()
	stop()
	if err != nil {
		log.Fatal("worker: ", err)
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
	client, err := redlatch.Open(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	// All processes that name it have the same executor. Here both sides are in one process.
	ex := rexecutor.New(client, "worker-"+uuid.NewString()[:8], rexecutor.WithResultTTL(time.Minute))
	o := newOffice()

	if err := submit(ctx, ex); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- work(working, ex, o) }()

	err = operate(ctx, ex, o)
	var last *rexecutor.Future[report]
	if err == nil {
		last, err = lastReport(ctx, ex, o)
	}
	// A clean end: nothing more is begun, and what runs may go on for the time of WithStopGrace. What is left in the queue is for other
	// workers, or the next ones.
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	if _, err := last.Get(ctx); err != nil {
		return fmt.Errorf("the report that was being built is lost: %w", err)
	}
	o.say("the workers have stopped, and the report is there")
	return o.check()
}

// lastReport has one more report built, and returns when that has begun.
func lastReport(ctx context.Context, ex *rexecutor.Executor, o *office) (*rexecutor.Future[report], error) {
	last, err := buildReport.Submit(ctx, ex, period{"May"})
	if err != nil {
		return nil, err
	}
	for month := ""; month != "May"; {
		select {
		case p := <-o.reporting:
			month = p.Month
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	o.say("the workers are stopped while the report of May is being built")
	return last, nil
}

// submit is what a web server does.
func submit(ctx context.Context, ex *rexecutor.Executor) error {
	for _, to := range []string{"ada", "bob", "eve"} {
		if err := sendMail.Send(ctx, ex, mail{to, "newsletter"}); err != nil { // nobody waits for it
			return err
		}
	}
	// Of what is due the higher priority goes first, whichever task it is of.
	if err := sendMail.Send(ctx, ex, mail{"bob", "password reset"}, rexecutor.WithPriority(9)); err != nil {
		return err
	}

	// The invoices of a customer are charged one at a time, in order. The id has an invoice charged once, however often it is submitted.
	for n, customer := range []string{"ada", "ada", "bob", "ada", "eve", "eve"} {
		i := invoice{n + 1, customer}
		for range 2 {
			err := chargeInvoice.Send(ctx, ex, i, rexecutor.WithGroup(customer), rexecutor.WithID(fmt.Sprint("invoice-", i.Number)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// work is what a worker does, until ctx ends.
func work(ctx context.Context, ex *rexecutor.Executor, o *office) error {
	err := errors.Join(
		sendMail.Handle(ex, o.send),
		chargeInvoice.Handle(ex, o.charge),
		buildReport.Handle(ex, o.build),
	)
	if err != nil {
		return err
	}
	return ex.Work(ctx,
		rexecutor.WithConcurrency(8),
		rexecutor.WithTaskConcurrency(sendMail, 1), // the mail server takes one at a time
		rexecutor.WithStopGrace(5*time.Second),
		rexecutor.Use(o.lines),
	)
}

// lines is middleware: it is around the handlers of all tasks.
func (o *office) lines(next rexecutor.Handler) rexecutor.Handler {
	return func(ctx context.Context, info rexecutor.Info) error {
		start := time.Now()
		err := next(ctx, info)
		took := time.Since(start).Round(10 * time.Millisecond)
		if err != nil {
			o.say("%-14s attempt %d failed after %v: %v", info.Task, info.Attempt, took, err)
		} else {
			o.say("%-14s attempt %d done in %v", info.Task, info.Attempt, took)
		}
		return err
	}
}

// operate waits for a report, and has what failed for good done again once its cause is mended.
func operate(ctx context.Context, ex *rexecutor.Executor, o *office) error {
	f, err := buildReport.Submit(ctx, ex, period{"April"}, rexecutor.WithDelay(500*time.Millisecond))
	if err != nil {
		return err
	}
	r, err := f.Get(ctx) // waits until it is there
	if err != nil {
		return err
	}
	o.say("the report of April has %d invoices", r.Invoices)
	if err := idle(ctx, ex); err != nil {
		return err
	}

	var dead []string
	for e, err := range ex.All(ctx, rexecutor.Dead) {
		if err != nil {
			return err
		}
		o.say("failed for good: %s %s: %s", e.Task, e.ID, e.Error)
		dead = append(dead, e.ID)
	}
	if !slices.Equal(dead, []string{"invoice-5"}) {
		return fmt.Errorf("it should be invoice 5 that fails, and not %v", dead)
	}
	o.renewCard("eve")
	if _, err := ex.Queue().Redrive(ctx, "invoice-5"); err != nil { // RedriveAll for all of them
		return err
	}
	return idle(ctx, ex)
}

// idle waits until nothing is waiting or being done.
func idle(ctx context.Context, ex *rexecutor.Executor) error {
	for {
		s, err := ex.Stats(ctx)
		if err != nil {
			return err
		}
		if s.Delayed+s.Ready+s.InFlight == 0 {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the work is not done: %w", ctx.Err())
		}
	}
}
