package redlatch_test

import (
	"context"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

// The other objects, as functions of a service. All clients on one Redis share the objects of one name.
func Example_objects() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for _, f := range []func(context.Context, *redlatch.Client) error{serveNext, changePrices, transfer, runJob, download, start} {
		if err := f(ctx, client); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// the next customer is served
	// the prices are changed
	// the prices are shown
	// the money is transferred
	// the job is done
	// the file is downloaded
	// everybody is ready
}

func serveNext(ctx context.Context, client *redlatch.Client) error {
	return client.GetFairLock("counter").Do(ctx, func(ctx context.Context) error {
		return work(ctx, "the next customer is served")
	})
}

func changePrices(ctx context.Context, client *redlatch.Client) error {
	prices := client.GetReadWriteLock("prices")
	err := prices.Do(ctx, func(ctx context.Context) error { // one writer, and no readers meanwhile
		return work(ctx, "the prices are changed")
	})
	if err != nil {
		return err
	}
	return prices.RDo(ctx, func(ctx context.Context) error { // any number of readers
		return work(ctx, "the prices are shown")
	})
}

func transfer(ctx context.Context, client *redlatch.Client) error {
	both := client.GetMultiLock(client.GetLock("account:1"), client.GetLock("account:2"))
	return both.Do(ctx, func(ctx context.Context) error {
		return work(ctx, "the money is transferred") // ctx ends when either lock is lost
	})
}

func runJob(ctx context.Context, client *redlatch.Client) error {
	jobs := client.GetSemaphore("jobs")
	if _, err := jobs.TrySetPermits(ctx, 5); err != nil { // whoever comes first sets them
		return err
	}
	if err := jobs.Acquire(ctx, 1); err != nil { // waits for one of the five
		return err
	}
	defer jobs.Release(ctx, 1)

	return work(ctx, "the job is done")
}

func download(ctx context.Context, client *redlatch.Client) error {
	downloads := client.GetPermitSemaphore("downloads")
	if _, err := downloads.TrySetPermits(ctx, 5); err != nil { // whoever comes first sets them
		return err
	}
	permit, err := downloads.Acquire(ctx) // waits for one of the five
	if err != nil {
		return err
	}
	defer permit.Release(ctx)

	return work(permit.Context(), "the file is downloaded") // a context that ends when the permit is lost
}

func start(ctx context.Context, client *redlatch.Client) error {
	ready := client.GetCountDownLatch("ready")
	if _, err := ready.TrySetCount(ctx, 1); err != nil { // for how many; before anybody waits
		return err
	}
	if _, err := ready.CountDownOnce(ctx, "worker-7"); err != nil { // in each worker that is ready; or CountDown
		return err
	}
	if err := ready.Await(ctx); err != nil { // in whoever waits for all of them
		return err
	}
	return work(ctx, "everybody is ready")
}

// A RedLock needs clients of independent masters, here three servers in this process.
func Example_redLock() {
	var clients []*redlatch.Client
	for range 3 {
		client, err := embedded.Open()
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	if err := lead(context.Background(), clients); err != nil {
		log.Fatal(err)
	}
	// Output: leading
}

func lead(ctx context.Context, clients []*redlatch.Client) error {
	var locks []rlock.Locker
	for _, client := range clients { // one for each independent master
		locks = append(locks, client.GetLock("leader"))
	}
	return clients[0].GetRedLock(locks...).Do(ctx, func(ctx context.Context) error {
		return work(ctx, "leading") // ctx ends when the majority is lost
	})
}
