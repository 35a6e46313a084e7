// Locks is a program that takes a lock and nothing else of the library.
package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

func main() {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}})
	defer rdb.Close()
	client, err := redlatch.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = rlock.New(client, "orders").Do(context.Background(), func(context.Context) error { return nil })
	log.Print(err)
}
