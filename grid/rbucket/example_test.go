package rbucket_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rbucket"
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

	bucket := rbucket.New[config](client, "config")
	if err := bucket.Set(ctx, config{Workers: 4}); err != nil {
		log.Fatal(err)
	}
	c, err := bucket.Update(ctx, func(c config, ok bool) (config, error) {
		c.Workers *= 2
		return c, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Workers)
	// Output: 8
}

// A lock guards the value, even against a holder that does not know yet that it has lost the lock.
func ExampleWithFence() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	bucket := rbucket.New[config](client, "config")
	hold, err := client.GetFencedLock("config lock").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	if err := bucket.Set(ctx, config{Workers: 4}, rbucket.WithFence(hold.Token())); err != nil {
		log.Fatal(err) // redlatch.ErrFenced if a later holder has set it
	}
	c, _, err := bucket.Get(ctx)
	fmt.Println(c.Workers, err)
	// Output: 4 <nil>
}
