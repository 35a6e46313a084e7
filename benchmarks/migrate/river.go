package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// ErrDeclined says that nobody will ever pay.
var ErrDeclined = errors.New("payment declined")

// snippet: river
type chargeArgs struct {
	Order int `json:"order"`
}

func (chargeArgs) Kind() string { return "order:charge" }

type chargeWorker struct {
	river.WorkerDefaults[chargeArgs]

	charge func(ctx context.Context, order int) error
}

func (w *chargeWorker) Work(ctx context.Context, job *river.Job[chargeArgs]) error {
	err := w.charge(ctx, job.Args.Order)
	if errors.Is(err, ErrBusy) {
		return river.JobSnooze(50 * time.Millisecond) // not now, and no attempt; in a shop: time.Minute
	}
	if errors.Is(err, ErrDeclined) {
		return river.JobCancel(err) // never again
	}
	return err
}

// ChargeOrders charges orders in the background, and works until ctx ends.
func ChargeOrders(ctx context.Context, pool *pgxpool.Pool, charge func(ctx context.Context, order int) error) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &chargeWorker{charge: charge})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 16}}, Workers: workers,
	})
	if err != nil {
		return err
	}

	once := river.UniqueOpts{ByArgs: true}
	if _, err := client.Insert(ctx, chargeArgs{42}, &river.InsertOpts{UniqueOpts: once, Priority: 1}); err != nil {
		return err
	}
	later, err := client.Insert(ctx, chargeArgs{43}, &river.InsertOpts{UniqueOpts: once, Priority: 2, ScheduledAt: time.Now().Add(time.Hour)})
	if err != nil {
		return err
	}
	if _, err := client.JobCancel(ctx, later.Job.ID); err != nil { // paid in cash
		return err
	}

	if err := client.Start(ctx); err != nil {
		return err
	}
	<-client.Stopped()
	return nil
}

// end snippet
