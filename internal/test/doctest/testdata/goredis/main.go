// Goredis is a program that uses go-redis alone, with the client that a locking program gives to the library.
package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"
)

func main() {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}})
	defer rdb.Close()
	log.Print(rdb.SetNX(context.Background(), "orders", "me", 0).Err())
}
