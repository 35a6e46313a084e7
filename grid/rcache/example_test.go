package rcache_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rcache"
)

// User is what is slow to read.
type User struct {
	Name string
	City string
}

// users is a database.
type users map[int64]User

func (t users) find(_ context.Context, id int64) (User, error) {
	u, ok := t[id]
	if !ok {
		return User{}, fmt.Errorf("user %d: %w", id, rcache.ErrNotFound)
	}
	return u, nil
}

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	database := users{42: {"Ann", "Oslo"}}

	// snippet: loadOnce
	cache := rcache.New[int64, User](client, "users", database.find,
		rcache.WithTTL(10*time.Minute), rcache.WithRefresh(time.Minute))
	u, err := cache.Get(ctx, 42)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(u.City)
	// end snippet

	// snippet: invalidate
	database[42] = User{"Ann", "Rome"} // first the database, then the cache
	if err := cache.Invalidate(ctx, 42); err != nil {
		log.Fatal(err)
	}
	// end snippet
	u, err = cache.Get(ctx, 42)
	fmt.Println(u.City, err)
	_, err = cache.Get(ctx, 43)
	fmt.Println(errors.Is(err, rcache.ErrNotFound), err)
	// Output:
	// Oslo
	// Rome <nil>
	// true rcache: get "users": user 43: not found
}

// A loader may know how long its value is good.
func ExampleKeepFor() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	tokens := rcache.New[string, string](client, "tokens", func(ctx context.Context, tenant string) (string, error) {
		token, lifetime := "secret of "+tenant, 30*time.Minute // what the identity provider says
		rcache.KeepFor(ctx, lifetime-time.Minute)
		return token, nil
	})
	token, err := tokens.Get(ctx, "acme")
	fmt.Println(token, err)
	// Output: secret of acme <nil>
}
