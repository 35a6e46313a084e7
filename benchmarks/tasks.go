package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/benchmarks/internal/postgres"
	"github.com/redlatch/redlatch/rexecutor"
)

// workTask is a process that works on tasks.
type workTask struct {
	Addr     string `json:"addr"`
	Database string `json:"database"` // of River
	Library  string `json:"library"`
	Handlers int    `json:"handlers"`
	Tasks    int    `json:"tasks"` // of all processes together
}

// nothing is a task of no work.
var nothing = rexecutor.NewTask[[]byte, struct{}]("nothing") //nolint:gochecknoglobals // a constant in all but name

const (
	doneKey = "tasks_done" // counts the tasks that were handled
	results = 300
)

// workOnTasks is the task of a worker that handles tasks until all are done.
func workOnTasks(ctx context.Context, task workTask, ready func() time.Time) (last time.Time, err error) {
	rdb := newGoRedis(setup{Addr: task.Addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	working, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	begin := ready()
	time.Sleep(time.Until(begin))
	finished := make(chan error, 1)
	go func() { finished <- serveTasks(working, task, func() { done.Add(1) }) }()
	for noted := int64(0); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		n := done.Load()
		all, err := rdb.IncrBy(ctx, doneKey, n-noted).Result()
		if err != nil {
			return last, errors.Join(err, ctx.Err())
		}
		if noted = n; all >= int64(task.Tasks) {
			break
		}
	}
	last = time.Now()
	stop()
	return last, <-finished
}

// serveTasks handles tasks with a library until ctx ends.
func serveTasks(ctx context.Context, task workTask, handled func()) error {
	if task.Library == machineryName || task.Library == statelessName {
		return serveMachinery(ctx, task, handled)
	}
	if task.Library == riverName {
		return serveRiver(ctx, task, handled)
	}
	rdb := newGoRedis(setup{Addr: task.Addr})
	if task.Library == asynqName {
		server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: task.Handlers, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second})
		err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			handled()
			return nil
		}))
		if err != nil {
			return err
		}
		<-ctx.Done()
		server.Shutdown()
		return rdb.Close()
	}
	client, err := redlatch.New(rdb)
	if err != nil {
		return err
	}
	ex := rexecutor.New(client, "tasks")
	err = nothing.Handle(ex, func(context.Context, rexecutor.Call[[]byte]) (struct{}, error) {
		handled()
		return struct{}{}, nil
	})
	if err == nil {
		err = ex.Work(ctx, rexecutor.WithConcurrency(task.Handlers))
	}
	return errors.Join(err, client.Close(), rdb.Close())
}

// tasks compares executors with asynq, machinery and River: tasks of no work by 16 handlers in two processes, that were submitted before, and by
// 2,000; and measures the time from Submit to the result with an idle worker in PINGs.
func tasks(ctx context.Context, b *bench) (rows []row, err error) {
	n := 100_000
	if b.config.quick {
		n = 20_000
	}
	few, many := []string{asynqName, machineryName, statelessName, redlatchName}, []string{asynqName, redlatchName}
	var database string
	pg, err := postgres.Start(ctx, "fsync=off", "synchronous_commit=off") // Redis keeps nothing on the disk here either
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, pg.Stop()) }()
		few, many, database = append(few, riverName), append(many, riverName), pg.URL
	case errors.Is(err, postgres.ErrMissing):
		progress("tasks: River is left out, %v", err)
	default:
		return nil, err
	}
	byFew, byMany := samples{}, samples{}
	for round := range b.rounds {
		for _, turn := range []struct {
			libraries []string
			handlers  int // of each process
			rates     samples
		}{{few, 8, byFew}, {many, 1000, byMany}} {
			for _, library := range rotated(turn.libraries, round) {
				rate, err := taskRate(ctx, b, database, library, turn.handlers, n)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", library, err)
				}
				progress("%s, %d handlers: %s tasks/s", library, 2*turn.handlers, figure(rate))
				turn.rates.add(library, rate)
			}
		}
	}
	best := byFew.best(asynqName, machineryName, riverName) // without its backend machinery promises less
	waits, pings, err := resultTimes(ctx, b)
	if err != nil {
		return nil, err
	}
	return []row{
		{
			Measure: fmt.Sprintf("%s tasks of no work, submitted before, 16 handlers in 2 processes: tasks/s", figure(float64(n))),
			Cells:   byFew.cells(), Rounds: byFew,
			Targets: []target{atLeast("× "+best, 1.5, byFew.ratio(redlatchName, best))},
		},
		{Measure: "the same, 2,000 handlers in 2 processes: tasks/s", Cells: byMany.cells(), Rounds: byMany},
		{
			Measure: "from Submit to the result, an idle worker in another client: p50/p99 µs / PING after the same pause p50 µs",
			Cells:   map[string][]float64{redlatchName: {percentile(waits, 0.5), percentile(waits, 0.99), percentile(pings, 0.5)}},
			Targets: []target{atMost("× PING", 6, percentile(waits, 0.5)/percentile(pings, 0.5))},
		},
	}, b.server.empty(ctx)
}

// taskRate submits n tasks, and returns how many a second two processes handle.
func taskRate(ctx context.Context, b *bench, database, library string, handlers, n int) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := b.server.empty(ctx); err != nil {
		return 0, err
	}
	task := workTask{b.server.addr, database, library, handlers, n}
	if library == riverName {
		err = submitToRiver(ctx, database, n)
	} else {
		err = submitTasks(ctx, b.server.addr, library, n)
	}
	if err != nil {
		return 0, err
	}
	workers := make([]*worker, 2)
	for i := range workers {
		if workers[i], err = startWorker(ctx, "tasks", task); err != nil {
			return 0, err
		}
		defer workers[i].end()
		if err := workers[i].awaitReady(); err != nil {
			return 0, err
		}
	}
	begin := time.Now().Add(200 * time.Millisecond)
	for _, w := range workers {
		if err := w.start(begin); err != nil {
			return 0, err
		}
	}
	var end time.Time
	for _, w := range workers {
		var last time.Time
		if err := w.result(&last); err != nil {
			return 0, err
		}
		if last.After(end) {
			end = last
		}
	}
	return float64(n) / end.Sub(begin).Seconds(), nil
}

// submitTasks submits n tasks from 100 goroutines.
func submitTasks(ctx context.Context, addr, library string, n int) error {
	rdb := newGoRedis(setup{Addr: addr})
	client, err := redlatch.New(rdb)
	if err != nil {
		return err
	}
	ex, value := rexecutor.New(client, "tasks"), []byte(payload)
	send := func() error { return nothing.Send(ctx, ex, value) }
	switch library {
	case machineryName, statelessName:
		submit := machinerySender(addr, library, value)
		send = func() error { return submit(ctx) }
	case asynqName:
		queue := asynq.NewClientFromRedisClient(rdb)
		send = func() error {
			_, err := queue.EnqueueContext(ctx, asynq.NewTask("nothing", value))
			return err
		}
	}
	var next atomic.Int64
	failed := make(chan error, 100)
	for range cap(failed) {
		go func() {
			for next.Add(1) <= int64(n) {
				if err := send(); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range cap(failed) {
		err = errors.Join(err, <-failed)
	}
	return errors.Join(err, client.Close(), rdb.Close())
}

// resultTimes returns the times from Submit to the result, and those of PINGs between, in µs.
func resultTimes(ctx context.Context, b *bench) (waits, pings []float64, err error) {
	working, stop := context.WithCancel(ctx)
	rdb := newGoRedis(setup{Addr: b.server.addr})
	finished := make(chan error, 1)
	go func() { finished <- serveTasks(working, workTask{Addr: b.server.addr, Handlers: 1}, func() {}) }()
	client, err := redlatch.New(rdb)
	if err != nil {
		stop()
		return nil, nil, errors.Join(err, <-finished)
	}
	ex, value := rexecutor.New(client, "tasks"), []byte(payload)
	for i := 0; i < results && err == nil; i++ {
		time.Sleep(5 * time.Millisecond) // until the worker sleeps
		start := time.Now()
		var f *rexecutor.Future[struct{}]
		if f, err = nothing.Submit(ctx, ex, value); err == nil {
			_, err = f.Get(ctx)
		}
		waits = append(waits, micros(time.Since(start)))
		time.Sleep(5 * time.Millisecond) // a PING of an idle connection, as the submission is
		start = time.Now()
		err = errors.Join(err, rdb.Ping(ctx).Err())
		pings = append(pings, micros(time.Since(start)))
	}
	stop()
	return waits, pings, errors.Join(err, <-finished, client.Close(), rdb.Close())
}
