package rbucket_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/rlock"
)

type config struct {
	Workers int `json:"workers"`
}

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for range 2 { // the second process finds what the first one left
		if err := doubleWorkers(ctx, client); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 8
	// 16
}

func doubleWorkers(ctx context.Context, client *redlatch.Client) error {
	bucket := rbucket.New[config](client, "config")
	if _, err := bucket.SetIfAbsent(ctx, config{Workers: 4}); err != nil {
		return err
	}
	c, err := bucket.Update(ctx, func(c config, ok bool) (config, error) {
		c.Workers *= 2
		return c, nil
	})
	fmt.Println(c.Workers)
	return err
}

// A lock guards the value, even against a holder that does not know yet that it has lost the lock: its write is refused.
func ExampleWithFence() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	bucket, lock := rbucket.New[config](client, "config"), client.GetFencedLock("config lock")
	paused, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := lock.ForceUnlock(ctx); err != nil { // as if its lease had ended while its process was paused
		log.Fatal(err)
	}
	later, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer later.Unlock(ctx)
	fmt.Println("later: ", save(ctx, bucket, config{Workers: 8}, later))
	fmt.Println("paused:", save(ctx, bucket, config{Workers: 4}, paused))
	c, _, err := bucket.Get(ctx)
	fmt.Println(c.Workers, err)
	// Output:
	// later:  <nil>
	// paused: the lock is lost
	// 8 <nil>
}

func save(ctx context.Context, bucket *rbucket.Bucket[config], c config, hold *rlock.Hold) error {
	err := bucket.Set(ctx, c, rbucket.WithFence(hold.Token()))
	if errors.Is(err, redlatch.ErrFenced) { // a later holder has written
		return errors.New("the lock is lost")
	}
	return err
}
