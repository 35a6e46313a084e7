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
}

func openAsynq(s setup) *asynqJobs {
	rdb := newGoRedis(s)
	return &asynqJobs{rdb, asynq.NewClientFromRedisClient(rdb)}
}

func (j *asynqJobs) offer(ctx context.Context, payload []byte, delay time.Duration) error {
	_, err := j.client.EnqueueContext(ctx, asynq.NewTask("job", payload), asynq.ProcessIn(delay))
	return err
}

// consume uses the shortest of the intervals that asynq polls at: 100 ms for tasks whose time has come, instead of 5 s.
func (j *asynqJobs) consume(ctx context.Context, handle func([]byte)) error {
	server := asynq.NewServerFromRedisClient(j.rdb, asynq.Config{
		Concurrency: 64, DelayedTaskCheckInterval: 100 * time.Millisecond, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
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
