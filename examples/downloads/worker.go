package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rsemaphore"
)

// work is what one process does: its workers download file after file until none is left.
func work(ctx context.Context, url, prefix string, number int) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	return workOn(ctx, rdb, prefix, number)
}

func workOn(ctx context.Context, rdb *redis.Client, prefix string, number int) error {
	client, err := redlatch.New(rdb, redlatch.WithNamePrefix(prefix), redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer client.Close()
	slots := client.GetPermitSemaphore("slots")

	errs := make(chan error, workers)
	var crew sync.WaitGroup
	for i := range workers {
		crew.Go(func() {
			me := fmt.Sprintf("process %d, worker %d", number, i+1)
			for {
				more, err := downloadNext(ctx, rdb, slots, prefix, me)
				if err != nil || !more {
					errs <- err
					return
				}
			}
		})
	}
	crew.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// downloadNext downloads one file under a permit, and reports whether there was one.
func downloadNext(ctx context.Context, rdb *redis.Client, slots *rsemaphore.PermitSemaphore, prefix, me string) (bool, error) {
	permit, err := slots.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer permit.Release(ctx)
	ctx = permit.Context() // ends when the permit is lost: somebody else may be downloading in its place then

	next, err := rdb.Incr(ctx, prefix+"next").Result()
	if err != nil {
		return false, err
	}
	file := int(next-1)%files + 1 // a second round for what a dead process has left
	done, err := rdb.SMembersMap(ctx, prefix+"done").Result()
	if err != nil || len(done) == files {
		return false, err
	}
	if _, ok := done[strconv.Itoa(file)]; ok {
		return true, nil
	}
	rdb.HSet(ctx, prefix+"busy", permit.ID(), me) // for the demo to look at
	defer rdb.HDel(context.WithoutCancel(ctx), prefix+"busy", permit.ID())
	select {
	case <-time.After(200 * time.Millisecond): // the download
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	fmt.Printf("%s: file %d, permit %s\n", me, file, permit.ID()[:8])
	return true, rdb.SAdd(ctx, prefix+"done", file).Err()
}
