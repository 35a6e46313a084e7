package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

// The program that docs/migrating.md shows beside those with other libraries.
func Example_migrating() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	closeOrder := func(ctx context.Context) error { return work(ctx, "order 42 is closed") }
	if err := closeOrder42(context.Background(), client, closeOrder); err != nil {
		log.Fatal(err)
	}
	err = client.GetLock("order:42").Do(context.Background(), func(context.Context) error {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer stop()
		return closeOrder42(ctx, client, closeOrder)
	})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// order 42 is closed
	// true
}

var errBusy = errors.New("order is busy")

func closeOrder42(ctx context.Context, client *redlatch.Client, closeOrder func(context.Context) error) error {
	// snippet: closeOrder42
	hold, err := client.GetLock("order:42").Lock(ctx, rlock.WithWait(5*time.Second))
	if errors.Is(err, rlock.ErrNotAcquired) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx) // works although ctx is done

	return closeOrder(hold.Context()) // renewed for as long as it takes; the context ends if the lock is lost
	// end snippet
}

// A mail is sent in the background, as docs/migrating.md shows it beside asynq.
func Example_migratingJobs() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	sendMail := func(_ context.Context, to string) error {
		fmt.Println("welcome", to)
		stop() // this example ends; a service would go on
		return nil
	}
	if err := welcomeAda(ctx, client, sendMail); err != nil {
		log.Fatal(err)
	}
	// Output: welcome ada@example.com
}

// snippet: welcomeAda
var welcome = rexecutor.NewTask[string, struct{}]("mail:welcome", rexecutor.WithMaxAttempts(5))

func welcomeAda(ctx context.Context, client *redlatch.Client, sendMail func(ctx context.Context, to string) error) error {
	ex := rexecutor.New(client, "mail")
	if err := welcome.Send(ctx, ex, "ada@example.com", rexecutor.WithID("welcome-ada")); err != nil {
		return err
	}

	err := welcome.Handle(ex, func(ctx context.Context, c rexecutor.Call[string]) (struct{}, error) {
		return struct{}{}, sendMail(ctx, c.Args)
	})
	if err != nil {
		return err
	}
	return ex.Work(ctx, rexecutor.WithConcurrency(16)) // until ctx ends
}

// end snippet

// An order is charged in the background, as docs/migrating.md shows it beside River.
func Example_migratingCharges() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	busy := true
	charge := func(_ context.Context, order int) error {
		fmt.Println("charge", order)
		if busy {
			busy = false
			return errBusy
		}
		stop() // this example ends; a service would go on
		return errDeclined
	}
	if err := chargeOrders(ctx, client, charge); err != nil {
		log.Fatal(err)
	}
	_, err = orderCharge.Future(rexecutor.New(client, "orders"), "charge-42").Get(context.Background())
	fmt.Println(err)
	// Output:
	// charge 42
	// charge 42
	// rexecutor: get the result of a task of "orders": task failed: payment declined
}

var errDeclined = errors.New("payment declined")

// snippet: chargeOrders
var orderCharge = rexecutor.NewTask[int, struct{}]("order:charge")

func chargeOrders(ctx context.Context, client *redlatch.Client, charge func(ctx context.Context, order int) error) error {
	ex := rexecutor.New(client, "orders")
	err := orderCharge.Handle(ex, func(ctx context.Context, c rexecutor.Call[int]) (struct{}, error) {
		err := charge(ctx, c.Args)
		if errors.Is(err, errBusy) {
			return struct{}{}, rexecutor.Snooze(50 * time.Millisecond) // not now, and no attempt; in a shop: time.Minute
		}
		if errors.Is(err, errDeclined) {
			return struct{}{}, rexecutor.Reject(err) // never again
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}

	if err := orderCharge.Send(ctx, ex, 42, rexecutor.WithID("charge-42"), rexecutor.WithPriority(9)); err != nil {
		return err
	}
	later, err := orderCharge.Submit(ctx, ex, 43, rexecutor.WithID("charge-43"), rexecutor.WithPriority(8), rexecutor.WithDelay(time.Hour))
	if err != nil {
		return err
	}
	if _, err := later.Cancel(ctx); err != nil { // paid in cash
		return err
	}

	return ex.Work(ctx, rexecutor.WithConcurrency(16)) // until ctx ends
}

// end snippet

// A report runs each second in one of all processes, as docs/migrating.md shows it beside gocron.
func Example_migratingSchedule() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	report := func(context.Context) error {
		fmt.Println("report")
		stop() // this example ends; a service would go on
		return nil
	}
	if err := reportEachSecond(ctx, client, report); err != nil {
		log.Fatal(err)
	}
	// Output: report
}

// snippet: reportEachSecond
func reportEachSecond(ctx context.Context, client *redlatch.Client, report func(ctx context.Context) error) error {
	s := client.GetScheduler("reports")
	err := s.Register("report", rscheduler.MustCron("* * * * * *"), func(ctx context.Context, _ rscheduler.Run) error {
		return report(ctx)
	})
	if err != nil {
		return err
	}
	return s.Run(ctx) // until ctx ends
}

// end snippet
