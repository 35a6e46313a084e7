// Leader has three candidates of which one leads, and the next one when it dies.
//
//	go run ./examples/leader
//
// The leader writes to a store, along with the term of its leadership. Watch how A dies, and how the next one leads when A's lease is
// over, with a higher term; and how a write of A that arrives late is refused, since the store has seen a higher term. The program ends
// with an error if two led at a time, or if the write was accepted. It takes about 3 s. The store is in store.go.
package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/relection"
)

const lease = time.Second // short, so that the demo is; the default is 30 s

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("leader: ", err) //nolint:gocritic // the context ends with the process
	}
}

func run(ctx context.Context) error {
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	s := &store{start: time.Now(), writes: make(chan write)}
	kills := map[string]func() error{}
	var first, next write
	for _, name := range []string{"A", "B", "C"} { // as if they were processes: each has connections of its own
		if kills[name], err = candidate(ctx, name, server.URL(), s); err != nil {
			return err
		}
		defer kills[name]() //nolint:errcheck // it ends with the program
		if name == "A" {
			first = <-s.writes // it leads before the others come
		}
	}
	if err := kills["A"](); err != nil {
		return err
	}
	s.say("A", "is killed, with a write of term %d on its way", first.term)
	for next.term <= first.term {
		select {
		case next = <-s.writes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.accept(first); !errors.Is(err, errStale) {
		return errors.New("the late write was not refused")
	}
	return s.check()
}

// candidate starts a process that leads whenever it is elected, and returns what kills it.
func candidate(ctx context.Context, name, url string, s *store) (kill func() error, err error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(options)
	client, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	go func() { // ends with ctx, or with the program
		_ = client.GetElection("prices").Run(ctx, func(ctx context.Context, term int64) error {
			return lead(ctx, name, term, s)
		}, relection.WithValue(name))
	}()
	return rdb.Close, nil // for good: it renews nothing, and gives nothing back
}

// lead writes every 100 ms while it leads. Its context ends before another one can lead.
func lead(ctx context.Context, name string, term int64, s *store) error {
	s.begin(name, term, ctx.Err)
	for {
		w := write{name, term}
		if err := s.accept(w); err != nil {
			return err
		}
		select {
		case s.writes <- w:
		case <-ctx.Done():
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			s.say(name, "leads no more")
			return context.Cause(ctx)
		}
	}
}
