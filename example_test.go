package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // a server in this process; in production: redlatch.Open(ctx, "redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	hold, err := client.GetLock("orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	fmt.Println("nobody else has the lock:", hold.Context().Err() == nil) // work under this context: it ends with the lock
	// Output: nobody else has the lock: true
}

// The four ways to use a lock, as functions of a service. All clients on one Redis share the locks of one name.
func Example_locks() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for _, f := range []func(context.Context, *redlatch.Client) error{closeOrder, cleanUp, writeReport, writeFile} {
		if err := f(ctx, client); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// order 42 is closed
	// cleaned up
	// the report is written
	// the file is written
}

func closeOrder(ctx context.Context, client *redlatch.Client) error {
	hold, err := client.GetLock("order:42").Lock(ctx) // waits until the lock is free or ctx is done
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)

	return work(hold.Context(), "order 42 is closed") // a context that ends when the lock is lost
}

func cleanUp(ctx context.Context, client *redlatch.Client) error {
	hold, err := client.GetLock("clean-up").TryLock(ctx) // or for a while: rlock.WithWait(time.Second)
	if errors.Is(err, rlock.ErrNotAcquired) {
		return nil // somebody else is at it
	}
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)

	return work(hold.Context(), "cleaned up")
}

func writeReport(ctx context.Context, client *redlatch.Client) error {
	return client.GetLock("report").Do(ctx, func(ctx context.Context) error {
		return work(ctx, "the report is written")
	})
}

func writeFile(ctx context.Context, client *redlatch.Client) error {
	hold, err := client.GetFencedLock("file").Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)

	return writeFenced(hold.Context(), hold.Token()) // the file refuses a token below the highest it has seen
}

func work(ctx context.Context, done string) error {
	fmt.Println(done)
	return ctx.Err()
}

func writeFenced(ctx context.Context, token int64) error {
	if token <= 0 {
		return errors.New("no token")
	}
	return work(ctx, "the file is written")
}

func ExampleOpen() {
	server, err := embedded.Start() // stands for the Redis that you have
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	url := server.URL()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // bounds the wait for Redis's first answer
	defer cancel()
	client, err := redlatch.Open(ctx, url, redlatch.WithWatchdogTimeout(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	locked, err := client.GetLock("orders").IsLocked(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("locked:", locked)
	// Output: locked: false
}

// A program that has a go-redis client shares it. The options of its connections are then the program's.
func ExampleNew() {
	server, err := embedded.Start() // stands for the Redis that you have
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close() // runs after client.Close
	client, err := redlatch.New(rdb, redlatch.WithNamePrefix("shop:"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	hold, err := client.GetLock("orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	fmt.Println(rdb.Keys(ctx, "*").Val())
	// Output: [shop:orders]
}

func ExampleWithObserver() {
	observer := redlatch.Observer{
		AcquireEnd: func(_ context.Context, e redlatch.AcquireEndEvent) { fmt.Println("acquired", e.Kind, e.Name, e.Err) },
		HoldEnd:    func(_ context.Context, e redlatch.HoldEndEvent) { fmt.Println("ended", e.Kind, e.Name, e.Err) },
	}
	client, err := embedded.Open(redlatch.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.GetLock("orders").Do(context.Background(), func(context.Context) error {
		fmt.Println("working")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// acquired lock orders <nil>
	// working
	// ended lock orders <nil>
}

// Close ends the contexts of all holds and waits, by default for 5 s at most, until their holders have unlocked.
func ExampleClient_Close() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	lock := client.GetLock("import")

	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	unlocked := make(chan error, 1)
	go func() {
		<-hold.Context().Done() // the import runs under this context
		fmt.Println("told to stop:", errors.Is(context.Cause(hold.Context()), redlatch.ErrClosed))
		unlocked <- hold.Unlock(ctx)
	}()

	if err := errors.Join(client.Close(), <-unlocked); err != nil {
		log.Fatal(err)
	}
	_, err = lock.Lock(ctx)
	fmt.Println(err)
	// Output:
	// told to stop: true
	// rlock: lock "import": client closed
}
