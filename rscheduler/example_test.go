package rscheduler_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rscheduler"
)

// serve runs the jobs of a service, in each of its processes, until ctx ends.
func serve(ctx context.Context, client *redlatch.Client, closeOrders func(context.Context, rscheduler.Run) error) error {
	s := client.GetScheduler("billing")
	err := s.Register("close-orders", rscheduler.MustCron("*/5 * * * *"), closeOrders)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	s := client.GetScheduler("greetings")
	soon := rscheduler.At(time.Now().Add(time.Second))
	err = s.Register("greet", soon, func(_ context.Context, run rscheduler.Run) error {
		fmt.Println(run.Job, "attempt", run.Attempt)
		stop()
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: greet attempt 1
}

func ExampleCron() {
	s, err := rscheduler.Cron("0 0 9 ? * MON#1", rscheduler.Quartz())
	if err != nil {
		log.Fatal(err)
	}
	next, _ := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	fmt.Println(next)
	// Output: 2026-01-05 09:00:00 +0000 UTC
}

// An operator pauses a job for all processes.
func ExampleScheduler_Pause() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- serve(running, client, func(context.Context, rscheduler.Run) error { return nil })
	}()

	operator := client.GetScheduler("billing")
	for operator.Pause(ctx, "close-orders", "invoices are being corrected") != nil { // until a process has registered it
		time.Sleep(time.Millisecond)
	}
	jobs, err := operator.Jobs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, j := range jobs {
		fmt.Println(j.Name, j.Schedule, j.Paused, j.Why)
	}
	stop()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output: close-orders */5 * * * * true invoices are being corrected
}
