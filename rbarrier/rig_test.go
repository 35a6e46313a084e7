package rbarrier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
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

// whole has the clients pass a round.
func whole(t *testing.T, all ...*locktest.Peer) {
	t.Helper()
	var ended []<-chan error
	for _, p := range all {
		ended = append(ended, await(t, p, len(all)))
	}
	for _, one := range ended {
		require.NoError(t, <-one)
	}
}

// enter has participants enter a double barrier.
func enter(t *testing.T, all ...*rbarrier.DoubleBarrier) {
	t.Helper()
	var ended []<-chan error
	for _, d := range all {
		ended = append(ended, begin(func() error { return d.Enter(t.Context()) }))
	}
	for _, one := range ended {
		require.NoError(t, <-one)
	}
}

// leave has participants leave a double barrier.
func leave(t *testing.T, all ...*rbarrier.DoubleBarrier) {
	t.Helper()
	var ended []<-chan error
	for _, d := range all {
		ended = append(ended, begin(func() error { return d.Leave(t.Context()) }))
	}
	for _, one := range ended {
		require.NoError(t, <-one)
	}
}
