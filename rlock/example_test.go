package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

// An order is worked on under its lock. The context of the hold ends when the lock is released or lost.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ship := func(ctx context.Context) error {
		fmt.Println("shipped:", ctx.Err() == nil)
		return ctx.Err()
	}

	lock := client.GetLock("order:42")
	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	if err := ship(hold.Context()); err != nil {
		log.Fatal(err)
	}
	// Output: shipped: true
}

func ExampleLock() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("order:42")

	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	left, err := lock.TTL(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held, by default for:", left.Round(time.Second))

	if err := hold.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	locked, err := lock.IsLocked(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("still locked:", locked)
	// Output:
	// held, by default for: 30s
	// still locked: false
}

// The context of a hold carries it: a function that needs the lock takes it, whether or not its caller has it.
func ExampleLock_Lock() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("stock")

	outer, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer outer.Unlock(ctx)

	inner, err := lock.Lock(outer.Context()) // does not wait: the context is the holder's
	if err != nil {
		log.Fatal(err)
	}
	levels, err := lock.HoldCount(inner.Context())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("levels:", levels)

	if err := inner.Unlock(ctx); err != nil { // one level less
		log.Fatal(err)
	}
	levels, err = lock.HoldCount(outer.Context())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("levels:", levels)
	// Output:
	// levels: 2
	// levels: 1
}

func ExampleLock_Do() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.GetLock("report").Do(ctx, func(ctx context.Context) error {
		fmt.Println("nobody else writes the report now")
		return nil // or an error, which Do returns
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: nobody else writes the report now
}

func ExampleLock_TryLock() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("clean-up")

	for _, worker := range []string{"A", "B"} {
		hold, err := lock.TryLock(ctx)
		if errors.Is(err, rlock.ErrNotAcquired) {
			fmt.Println(worker, "leaves it to the other one")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		defer hold.Unlock(ctx)
		fmt.Println(worker, "cleans up")
	}
	// Output:
	// A cleans up
	// B leaves it to the other one
}

// WithWait bounds the wait and nothing else: a hold that is acquired in time has no deadline by it.
func ExampleLock_TryLock_wait() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("clean-up")

	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	_, err = lock.TryLock(ctx, rlock.WithWait(20*time.Millisecond))
	fmt.Println(err)
	fmt.Println("gave up:", errors.Is(err, rlock.ErrNotAcquired))
	// Output:
	// rlock: try lock "clean-up": lock not acquired
	// gave up: true
}

// A holder whose lock is taken away hears of it through the context, and can ask why.
func ExampleHold_Context() {
	ctx := context.Background()
	client, err := embedded.Open(redlatch.WithWatchdogTimeout(300 * time.Millisecond)) // a loss shows within a third of the lease
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("import")

	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := lock.ForceUnlock(ctx); err != nil {
		log.Fatal(err)
	}

	<-hold.Context().Done()
	fmt.Println("lost:", errors.Is(context.Cause(hold.Context()), rlock.ErrLost))
	fmt.Println("nothing to unlock:", errors.Is(hold.Unlock(ctx), rlock.ErrNotHeld))
	// Output:
	// lost: true
	// nothing to unlock: true
}

// Extend gives a job that knows how long it takes a lease of just that length, which the watchdog leaves alone.
func ExampleHold_Extend() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("export")

	hold, err := lock.Lock(ctx, rlock.WithFixedLease(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	if err := hold.Extend(ctx, time.Hour); err != nil {
		log.Fatal(err)
	}
	left, err := lock.TTL(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("lease left:", left.Round(time.Minute))
	// Output: lease left: 1h0m0s
}

// A file that remembers the highest token refuses a writer that was stopped, lost its lock, and does not know it yet.
func ExampleHold_Token() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetFencedLock("file")

	highest := int64(0)
	write := func(token int64, text string) {
		if token < highest {
			fmt.Println("refused:", text)
			return
		}
		highest = token
		fmt.Println("written:", text)
	}

	stopped, err := lock.Lock(ctx, rlock.WithFixedLease(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	write(stopped.Token(), "one")

	next, err := lock.Lock(ctx) // gets the lock when that lease has ended
	if err != nil {
		log.Fatal(err)
	}
	defer next.Unlock(ctx)
	write(next.Token(), "two")

	write(stopped.Token(), "three")
	// Output:
	// written: one
	// written: two
	// refused: three
}

// A service that restarts takes its own lock back at once, instead of waiting for the lease of its former life to end.
func ExampleWithTakeOver() {
	ctx := context.Background()
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	crash := []redlatch.Option{redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose()}
	before, err := redlatch.Open(ctx, server.URL(), crash...)
	if err != nil {
		log.Fatal(err)
	}
	hold, err := before.GetLock("billing").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	saved := hold.Owner() // in a file, for example
	before.Close()        // leaves the lock to its lease of 30 s, as a crash does

	after, err := redlatch.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer after.Close()
	hold, err = after.GetLock("billing").TryLock(ctx, rlock.WithTakeOver(saved))
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	fmt.Println("taken back under a fresh id:", hold.Owner() != saved)
	// Output: taken back under a fresh id: true
}

// A goroutine that got a hold's context shares the hold. Detach makes it compete.
func ExampleDetach() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock := client.GetLock("stock")

	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	nested, err := lock.TryLock(hold.Context())
	if err != nil {
		log.Fatal(err)
	}
	defer nested.Unlock(ctx)
	fmt.Println("with the hold's context: nested")

	_, err = lock.TryLock(rlock.Detach(hold.Context()))
	fmt.Println("detached:", err)
	// Output:
	// with the hold's context: nested
	// detached: rlock: try lock "stock": lock not acquired
}

// What takes a Locker works with every kind of lock.
func ExampleLocker() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	restock := func(l rlock.Locker) error {
		return l.Do(ctx, func(context.Context) error {
			fmt.Println("restocking under", l.Name())
			return nil
		})
	}
	for _, l := range []rlock.Locker{client.GetLock("shelf"), client.GetFairLock("till"), client.GetReadWriteLock("stock")} {
		if err := restock(l); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// restocking under shelf
	// restocking under till
	// restocking under stock
}
