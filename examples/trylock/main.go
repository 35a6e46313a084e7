// Trylock shows the ways not to wait for a lock: TryLock asks once, WithWait bounds the wait, and Do releases by itself.
//
//	go run ./examples/trylock
//
// Watch how the first two calls give up with ErrNotAcquired, at once and after 100 ms, while a report holds the lock;
// and how the last one gets it as soon as the report is done, long before its 5 s are over.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		return err
	}
	defer client.Close()
	lock, start := client.GetLock("report"), time.Now()
	say := func(text string) { fmt.Printf("%6d ms  %s\n", time.Since(start).Milliseconds(), text) }

	report, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	say("a report holds the lock")

	if _, err := lock.TryLock(ctx); !errors.Is(err, rlock.ErrNotAcquired) {
		return fmt.Errorf("not turned away: %w", err)
	}
	say("TryLock: turned away at once")

	_, err = lock.TryLock(ctx, rlock.WithWait(100*time.Millisecond))
	say(fmt.Sprintf("TryLock with a wait of 100 ms: %v", err))

	done := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { done <- report.Unlock(ctx) })
	err = lock.Do(ctx, func(context.Context) error {
		say("Do with a wait of 5 s: the report is done, the lock is ours")
		return nil
	}, rlock.WithWait(5*time.Second))
	return errors.Join(err, <-done)
}
