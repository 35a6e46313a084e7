package rbarrier_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rbarrier"
)

const (
	place   = 5 * time.Second         // is good without being renewed
	recheck = 1250 * time.Millisecond // the longest time until a participant asks by itself
)

// peers returns so many clients.
func peers(t *testing.T, b *locktest.Bubble, n int) []*locktest.Peer {
	t.Helper()
	var all []*locktest.Peer
	for range n {
		all = append(all, b.Peer(t))
	}
	return all
}

// begin makes a call on a goroutine of its own, and returns when it waits.
func begin(call func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	synctest.Wait()
	return ended
}

// await has a client wait at a barrier of n participants.
func await(t *testing.T, p *locktest.Peer, n int) <-chan error {
	t.Helper()
	return begin(func() error { return p.GetBarrier("start", n).Await(t.Context()) })
}

func waits(t *testing.T, ended <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		require.Fail(t, "the call has ended", "%v", err)
	default:
	}
}

// finish requires that all calls end well.
func finish(t *testing.T, ended ...<-chan error) {
	t.Helper()
	for _, one := range ended {
		require.NoError(t, <-one)
	}
}

// whole has the clients pass a round.
func whole(t *testing.T, all ...*locktest.Peer) {
	t.Helper()
	var ended []<-chan error
	for _, p := range all {
		ended = append(ended, await(t, p, len(all)))
	}
	finish(t, ended...)
}

// participants returns a participant of each client.
func participants(all []*locktest.Peer) []*rbarrier.DoubleBarrier {
	var ds []*rbarrier.DoubleBarrier
	for _, p := range all {
		ds = append(ds, p.GetDoubleBarrier("work", len(all)))
	}
	return ds
}

// enter has participants enter a double barrier.
func enter(t *testing.T, all ...*rbarrier.DoubleBarrier) {
	t.Helper()
	together(t, (*rbarrier.DoubleBarrier).Enter, all)
}

// leave has participants leave a double barrier.
func leave(t *testing.T, all ...*rbarrier.DoubleBarrier) {
	t.Helper()
	together(t, (*rbarrier.DoubleBarrier).Leave, all)
}

func together(t *testing.T, call func(*rbarrier.DoubleBarrier, context.Context) error, all []*rbarrier.DoubleBarrier) {
	t.Helper()
	var ended []<-chan error
	for _, d := range all {
		ended = append(ended, begin(func() error { return call(d, t.Context()) }))
	}
	finish(t, ended...)
}

// clientsOf returns the clients of peers.
func clientsOf(all []*locktest.Peer) []*redlatch.Client {
	var clients []*redlatch.Client
	for _, p := range all {
		clients = append(clients, p.Client)
	}
	return clients
}

// barrier is what a participant calls in each round, in order. Each call ends when all participants have made it.
type barrier func(c *redlatch.Client, n int) []func(context.Context) error

// single is a barrier of a name.
func single(name string) barrier {
	return func(c *redlatch.Client, n int) []func(context.Context) error {
		return []func(context.Context) error{c.GetBarrier(name, n).Await}
	}
}

// double is a double barrier of a name.
func double(name string) barrier {
	return func(c *redlatch.Client, n int) []func(context.Context) error {
		d := c.GetDoubleBarrier(name, n)
		return []func(context.Context) error{d.Enter, d.Leave}
	}
}

// pass has goroutines of some clients pass a barrier together, again and again.
func pass(t *testing.T, clients []*redlatch.Client, b barrier, each, rounds int) {
	t.Helper()
	n := len(clients) * each
	var mu sync.Mutex // guards called
	called := map[[2]int]int{}
	var all sync.WaitGroup
	for _, c := range clients {
		for range each {
			all.Go(func() {
				calls := b(c, n)
				count := func(round, call, more int) int {
					mu.Lock()
					defer mu.Unlock()
					called[[2]int{round, call}] += more
					return called[[2]int{round, call}]
				}
				for round := range rounds {
					for i, call := range calls {
						count(round, i, 1)
						if !assert.NoError(t, call(t.Context())) {
							return
						}
						assert.Equal(t, n, count(round, i, 0), "nobody goes on before all have made call %d", i)
					}
				}
			})
		}
	}
	all.Wait()
}
