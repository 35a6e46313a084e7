package rmultilock_test

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

// Two accounts are locked together, or neither: whoever transfers between them in the other direction waits, and nobody
// holds one while waiting for the other.
func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	both := client.GetMultiLock(client.GetLock("account:1"), client.GetLock("account:2"))
	err = both.Do(ctx, func(ctx context.Context) error {
		_, err := client.GetLock("account:2").TryLock(context.Background())
		fmt.Println("transferring; account 2 for others:", errors.Is(err, rlock.ErrNotAcquired))
		return ctx.Err() // ends when one of the locks is lost
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: transferring; account 2 for others: true
}

// A RedLock is held on a majority of independent masters. Two of five may be down.
func ExampleLock_redLock() {
	ctx := context.Background()
	var clients []*redlatch.Client
	var locks []rlock.Locker
	for range 5 {
		client, err := embedded.Open() // in production: redlatch.Open with the URL of a master of its own
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		clients, locks = append(clients, client), append(locks, client.GetLock("leader"))
	}
	leader := clients[0].GetRedLock(locks...)

	hold, err := leader.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("leading", leader.Name(), "for", time.Until(hold.ExpiresAt()).Round(10*time.Second))
	if err := hold.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: leading leader for 30s
}

func ExampleLock_TryLock_timeout() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	busy, err := client.GetLock("b").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer busy.Unlock(ctx)
	all := client.GetMultiLock(client.GetLock("a"), client.GetLock("b"))
	_, err = all.TryLock(ctx, rlock.WithWait(50*time.Millisecond))
	fmt.Println(errors.Is(err, rlock.ErrNotAcquired))
	held, err := client.GetLock("a").IsLocked(ctx)
	fmt.Println("a is left locked:", held, err)
	// Output:
	// true
	// a is left locked: false <nil>
}
