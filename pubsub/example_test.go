package pubsub_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/pubsub"
)

// news is a Listener that passes on what it hears.
type news struct {
	ready    chan struct{} // 1: the subscription stands
	messages chan string   // room for all that is sent below
}

func (n news) Subscribed() {
	select {
	case n.ready <- struct{}{}:
	default: // a reconnection
	}
}

func (n news) Message(payload string) { n.messages <- payload }

// A message is heard from the confirmation of its channel on.
func ExampleRouter() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	router := pubsub.New(rdb, pubsub.Options{})
	defer router.Close()
	listener := news{ready: make(chan struct{}, 1), messages: make(chan string, 1)}
	member, confirmed := router.Join("orders", listener)
	defer member.Leave()
	if !confirmed {
		<-listener.ready
	}

	if err := rdb.Publish(context.Background(), "orders", "42 was paid").Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-listener.messages)
	// Output: 42 was paid
}
