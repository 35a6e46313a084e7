package rrwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

// Readers share the lock; a writer has to wait for them.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetReadWriteLock("prices")

	first, err := lock.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer first.Unlock(ctx)
	second, err := lock.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Unlock(ctx)
	fmt.Println("both read:", first.Context().Err() == nil && second.Context().Err() == nil)

	_, err = lock.TryLock(ctx)
	fmt.Println("a writer has to wait:", errors.Is(err, rlock.ErrNotAcquired))
	// Output:
	// both read: true
	// a writer has to wait: true
}

// A writer goes on reading what it wrote, and nobody can write in between.
func ExampleLock_RLock_downgrade() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetReadWriteLock("prices")

	write, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	read, err := lock.RLock(write.Context()) // at once: the context is the writer's
	if err != nil {
		log.Fatal(err)
	}
	if err := write.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	defer read.Unlock(ctx)

	fmt.Println("still reading:", read.Context().Err() == nil)
	other, err := lock.TryRLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Unlock(ctx)
	fmt.Println("others read too")
	// Output:
	// still reading: true
	// others read too
}

// A reader that asked for the write lock would wait for itself. It is told so at once.
func ExampleLock_Lock_upgrade() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetReadWriteLock("prices")

	err = lock.RDo(ctx, func(ctx context.Context) error {
		_, err := lock.Lock(ctx)
		return err
	})
	fmt.Println(errors.Is(err, rrwlock.ErrUpgrade))
	// Output: true
}

func ExampleLock_TryLock_timeout() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetReadWriteLock("prices")

	read, err := lock.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer read.Unlock(ctx)
	_, err = lock.TryLock(ctx, rlock.WithWait(50*time.Millisecond))
	fmt.Println(err)
	// Output: rrwlock: try lock "prices": lock not acquired
}

// What takes any lock can be given the readers' side.
func ExampleLock_RLocker() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	report := func(l rlock.Locker) error {
		return l.Do(ctx, func(context.Context) error {
			fmt.Println("reported under", l.Name())
			return nil
		})
	}
	if err := report(client.GetReadWriteLock("prices").RLocker()); err != nil {
		log.Fatal(err)
	}
	// Output: reported under prices
}

func ExampleWithoutWriterPreference() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lock := client.GetReadWriteLock("prices", rrwlock.WithoutWriterPreference())
	err = lock.RDo(context.Background(), func(context.Context) error {
		fmt.Println("reading, whoever waits to write")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: reading, whoever waits to write
}
