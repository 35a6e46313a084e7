package rexecutor_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rscheduler"
)

// Picture is what is to be scaled.
type Picture struct {
	Name  string
	Width int
}

// Thumbnail is what is made of it.
type Thumbnail struct{ Name string }

func scale(_ context.Context, p Picture) (Thumbnail, error) {
	return Thumbnail{fmt.Sprintf("%s-%d", p.Name, p.Width)}, nil
}

// snippet: resize
var resize = rexecutor.NewTask[Picture, Thumbnail]("resize", rexecutor.WithMaxAttempts(5)) // for both sides

func workOn(ctx context.Context, client *redlatch.Client) error {
	ex := rexecutor.New(client, "media")
	err := resize.Handle(ex, func(ctx context.Context, c rexecutor.Call[Picture]) (Thumbnail, error) {
		return scale(ctx, c.Args)
	})
	if err != nil {
		return err
	}
	return ex.Work(ctx, rexecutor.WithConcurrency(16)) // in any process; until ctx ends
}

func thumbnail(ctx context.Context, client *redlatch.Client, p Picture) (Thumbnail, error) {
	f, err := resize.Submit(ctx, rexecutor.New(client, "media"), p)
	if err != nil {
		return Thumbnail{}, err
	}
	return f.Get(ctx) // waits until the task has ended, or ctx has
}

// end snippet

// A worker scales a picture for a process that waits for it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	done := make(chan error, 1)
	go func() { done <- workOn(ctx, client) }()

	t, err := thumbnail(ctx, client, Picture{Name: "cat", Width: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Name)
	stop()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output: cat-64
}

// A job has no result. Middleware writes a line for each attempt.
func ExampleTask_Send() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ex := rexecutor.New(client, "mail")
	welcome := rexecutor.NewTask[string, struct{}]("welcome", rexecutor.WithBackoff(func(attempt int) time.Duration {
		return time.Duration(attempt) * 10 * time.Millisecond
	}))
	err = welcome.Handle(ex, func(_ context.Context, c rexecutor.Call[string]) (struct{}, error) {
		if c.Attempt == 1 {
			return struct{}{}, errors.New("the mail server is busy")
		}
		stop() // this example ends; a service would go on
		return struct{}{}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := welcome.Send(ctx, ex, "ada@example.com", rexecutor.WithID("welcome-ada")); err != nil {
		log.Fatal(err)
	}

	lines := func(next rexecutor.Handler) rexecutor.Handler {
		return func(ctx context.Context, info rexecutor.Info) error {
			err := next(ctx, info)
			fmt.Println(info.Task, info.ID, "attempt", info.Attempt, "error:", err)
			return err
		}
	}
	if err := ex.Work(ctx, rexecutor.Use(lines)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// welcome welcome-ada attempt 1 error: the mail server is busy
	// welcome welcome-ada attempt 2 error: <nil>
}

// A scheduler sends a task at each of its instants, once for all processes.
func ExampleTask_Job() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ex := rexecutor.New(client, "reports")
	report := rexecutor.NewTask[string, struct{}]("report")
	err = report.Handle(ex, func(_ context.Context, c rexecutor.Call[string]) (struct{}, error) {
		fmt.Println("report of", c.Args)
		stop()
		return struct{}{}, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	s := client.GetScheduler("reports")
	soon := rscheduler.At(time.Now().Add(time.Second)) // in production: rscheduler.MustCron("0 2 * * *")
	if err := s.Register("nightly", soon, report.Job(ex, "sales", rexecutor.WithPriority(3))); err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if err := ex.Work(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output: report of sales
}
