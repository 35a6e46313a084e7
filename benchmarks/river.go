package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const riverName = "River"

// riverArgs are the arguments of a task of no work.
type riverArgs struct {
	Value []byte `json:"value"`
}

// Kind is the name of the task.
func (riverArgs) Kind() string { return nothing.Name() }

// serveRiver handles tasks until ctx ends. It fetches them as often as River's own benchmark does, every 2 ms: by default every 100 ms, which would
// be 160 tasks/s here.
func serveRiver(ctx context.Context, task workTask, handled func()) error {
	pool, err := pgxpool.New(ctx, task.Database+"&pool_max_conns=32")
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[riverArgs]) error {
		handled()
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: task.Handlers}}, Workers: workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

// submitToRiver submits n tasks in batches of 1,000, to new tables.
func submitToRiver(ctx context.Context, url string, n int) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		return err
	}
	tasks := make([]river.InsertManyParams, 1000)
	for i := range tasks {
		tasks[i].Args = riverArgs{[]byte(payload)}
	}
	for ; n > 0; n -= len(tasks) {
		if _, err := client.InsertManyFast(ctx, tasks[:min(n, len(tasks))]); err != nil {
			return err
		}
	}
	return nil
}
