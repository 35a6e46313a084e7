package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

type asynqJobs struct {
	rdb    *redis.Client
	client *asynq.Client
	queue  string
}

func openAsynq(s setup, queue string) *asynqJobs {
	rdb := newGoRedis(s)
	return &asynqJobs{rdb, asynq.NewClientFromRedisClient(rdb), queue}
}

func (j *asynqJobs) offer(ctx context.Context, payload []byte, delay time.Duration) error {
	_, err := j.client.EnqueueContext(ctx, asynq.NewTask("job", payload), asynq.ProcessIn(delay), asynq.Queue(j.queue))
	return err
}

// consume uses the shortest of the intervals that asynq polls at: 100 ms for tasks whose time has come, instead of 5 s. What
// failed, which a task of a worker that died has, is tried again at once, instead of after 10 s and more.
func (j *asynqJobs) consume(ctx context.Context, handle func([]byte)) error {
	server := asynq.NewServerFromRedisClient(j.rdb, asynq.Config{
		Concurrency: 64, DelayedTaskCheckInterval: 100 * time.Millisecond, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
		Queues:         map[string]int{j.queue: 1},
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func (j *asynqJobs) close() error {
	err := j.rdb.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}
