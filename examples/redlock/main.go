// Redlock shows a lock that outlives the loss of servers: three processes' worth of workers take turns at being the
// leader, by a RedLock over five independent servers.
//
//	go run ./examples/redlock
//
// With redis-server (or valkey-server) on the PATH it starts five of them; without, five servers inside this process.
// Watch how the work goes on when two servers are stopped half-way, in the middle of somebody's term, and what happens
// when the third one is: who leads hears of it before the lease of 2 s is over, and nobody else can lead. It ends by itself after
// about 9 s, with an error if two ever led at a time. What a RedLock does not promise is told in the documentation of package rmultilock.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rmultilock"
)

const (
	workers = 3
	term    = 500 * time.Millisecond
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 14*time.Second)
	defer cancel()
	redis.SetLogger(goRedisLog{}) // connections to stopped servers are expected to fail
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// scene is what the workers share.
type scene struct {
	start   time.Time
	leading atomic.Int32
	terms   atomic.Int32
	last    atomic.Bool // terms do not end by themselves any more
	broken  atomic.Bool // two led at a time
}

func (s *scene) say(format string, args ...any) {
	fmt.Printf("%5.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

func run(ctx context.Context) error {
	nodes, err := startNodes(ctx, 5)
	if err != nil {
		return err
	}
	defer nodes.stop()
	s := &scene{start: time.Now()}
	s.say("five servers: %s", nodes)
	over, end := context.WithCancel(ctx)
	defer end()
	var all sync.WaitGroup
	for i := range workers {
		leader, leave, err := join(nodes)
		if err != nil {
			return err
		}
		defer leave()
		all.Go(func() { s.work(over, fmt.Sprintf("worker %d", i+1), leader) })
	}
	time.Sleep(2700 * time.Millisecond)
	nodes.stopOne()
	nodes.stopOne()
	s.say("two of five servers are stopped: a majority is left")
	time.Sleep(2 * time.Second)
	s.last.Store(true)
	time.Sleep(time.Second)
	nodes.stopOne()
	before := s.terms.Load()
	s.say("the third is stopped: no majority is left")
	time.Sleep(3 * time.Second)
	end()
	all.Wait()
	s.say("%d terms; %d began after the third server was stopped", s.terms.Load(), s.terms.Load()-before)
	if s.broken.Load() || before < 4 {
		return fmt.Errorf("two led at a time: %v; terms with a majority: %d", s.broken.Load(), before)
	}
	return nil
}

// join returns a worker's own clients, one for each server, as a RedLock.
func join(n *nodes) (leader *rmultilock.Lock, leave func(), err error) {
	var clients []*redlatch.Client
	var locks []rlock.Locker
	leave = func() {
		for _, c := range clients {
			_ = c.Close() // the servers are gone
		}
	}
	for _, rdb := range n.connect() {
		client, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(2*time.Second), redlatch.WithCloseGrace(0))
		if err != nil {
			return nil, leave, err
		}
		clients, locks = append(clients, client), append(locks, client.GetLock("leader"))
	}
	return clients[0].GetRedLock(locks...), leave, nil
}

// work leads for half a second whenever it can.
func (s *scene) work(ctx context.Context, name string, leader *rmultilock.Lock) {
	for ctx.Err() == nil {
		err := leader.Do(ctx, func(ctx context.Context) error {
			if s.leading.Add(1) > 1 {
				s.broken.Store(true)
			}
			defer s.leading.Add(-1)
			s.terms.Add(1)
			s.say("%s leads", name)
			if s.last.Load() {
				<-ctx.Done() // the lock is lost
				return context.Cause(ctx)
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(term):
				return nil
			}
		}, rlock.WithWait(time.Second))
		switch {
		case errors.Is(err, rlock.ErrLost):
			s.say("%s has lost the lead", name)
		case errors.Is(err, rlock.ErrNotAcquired) && s.leading.Load() == 0:
			s.say("%s cannot lead: %v", name, rlock.ErrNotAcquired)
		}
		time.Sleep(200 * time.Millisecond) // let the others have a term too
	}
}

// snippet: goRedisLog

// goRedisLog has go-redis log with slog, at a level that is off by default.
type goRedisLog struct{}

func (goRedisLog) Printf(ctx context.Context, format string, args ...any) {
	slog.DebugContext(ctx, "go-redis: "+fmt.Sprintf(format, args...))
}

// end snippet
