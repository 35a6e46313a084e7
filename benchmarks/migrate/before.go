// Package migrate has the programs that docs/migrating.md shows, as they are with other libraries. Those with redlatch
// are examples of its own module.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis/rueidislock"
)

// ErrBusy says that somebody else has the order.
var ErrBusy = errors.New("order is busy")

// Redsync closes an order under a lock of redsync.
func Redsync(ctx context.Context, rdb *redis.Client, closeOrder func(context.Context) error) error {
	// snippet: redsync
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex("order:42",
		redsync.WithExpiry(30*time.Second), redsync.WithTries(50), redsync.WithRetryDelay(100*time.Millisecond))
	if err := mutex.LockContext(ctx); err != nil { // taken, or Redis failed
		return err
	}
	defer func() { _, _ = mutex.UnlockContext(context.WithoutCancel(ctx)) }()

	return closeOrder(ctx) // must end within 30 s, or call mutex.ExtendContext in time
	// end snippet
}

// BSM closes an order under a lock of bsm/redislock.
func BSM(ctx context.Context, rdb *redis.Client, closeOrder func(context.Context) error) error {
	// snippet: bsm
	lock, err := redislock.New(rdb).Obtain(ctx, "order:42", 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(100*time.Millisecond), 50),
	})
	if errors.Is(err, redislock.ErrNotObtained) {
		return ErrBusy
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()

	return closeOrder(ctx) // must end within 30 s, or call lock.Refresh in time
	// end snippet
}

// Rueidis closes an order under a lock of rueidislock.
func Rueidis(ctx context.Context, locker rueidislock.Locker, closeOrder func(context.Context) error) error {
	// snippet: rueidis
	wait, stop := context.WithTimeout(ctx, 5*time.Second) // also ends the context of the lock
	defer stop()
	held, release, err := locker.WithContext(wait, "order:42")
	if err != nil {
		return err
	}
	defer release()

	return closeOrder(held)
	// end snippet
}

// Asynq sends a mail in the background with asynq, and works until ctx ends.
func Asynq(ctx context.Context, rdb asynq.RedisConnOpt, sendMail func(ctx context.Context, to string) error) error {
	// snippet: asynq
	client := asynq.NewClient(rdb)
	defer func() { _ = client.Close() }()
	payload, err := json.Marshal("ada@example.com")
	if err != nil {
		return err
	}
	welcome := asynq.NewTask("mail:welcome", payload, asynq.MaxRetry(4))
	if _, err := client.EnqueueContext(ctx, welcome, asynq.TaskID("welcome-ada")); err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return err
	}

	mux := asynq.NewServeMux()
	mux.HandleFunc("mail:welcome", func(ctx context.Context, t *asynq.Task) error {
		var to string
		if err := json.Unmarshal(t.Payload(), &to); err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		return sendMail(ctx, to)
	})
	server := asynq.NewServer(rdb, asynq.Config{Concurrency: 16})
	if err := server.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
	// end snippet
}

// Gocron runs a report each second with gocron, in one of the processes that share the locker, until ctx ends.
func Gocron(ctx context.Context, locker gocron.Locker, report func(ctx context.Context) error) error {
	// snippet: gocron
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(report), gocron.WithName("report"),
		gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	return s.Shutdown()
	// end snippet
}
