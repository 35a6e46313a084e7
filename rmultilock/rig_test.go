package rmultilock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rmultilock"
)

// lease is that of the clients in bubbles.
const lease = 3 * time.Second

// servers are independent servers in one bubble.
type servers []*locktest.Bubble

// newServers returns n servers, of which the bubble's own is the first.
func newServers(t *testing.T, b *locktest.Bubble, n int) servers {
	t.Helper()
	s := servers{b}
	for len(s) < n {
		s = append(s, b.Another(t))
	}
	return s
}

// peers are clients of one process, one for each server.
type peers []*locktest.Peer

func (s servers) peers(t *testing.T, opts ...redlatch.Option) peers {
	t.Helper()
	var p peers
	for _, b := range s {
		p = append(p, b.Peer(t, append([]redlatch.Option{redlatch.WithWatchdogTimeout(lease)}, opts...)...))
	}
	return p
}

// locks returns the locks of one name, one for each server.
func (p peers) locks(name string) []rlock.Locker {
	var all []rlock.Locker
	for _, peer := range p {
		all = append(all, peer.GetLock(name))
	}
	return all
}

func (p peers) red(name string) *rmultilock.Lock { return p[0].GetRedLock(p.locks(name)...) }

// down has servers refuse connections.
func (p peers) down(on bool) {
	for _, peer := range p {
		peer.Refuse(on)
		if on {
			peer.Cut()
		}
	}
}

// have returns how many servers have the key.
func (s servers) have(t *testing.T, key string) (n int) {
	t.Helper()
	for _, b := range s {
		if len(b.Hash(t, key)) > 0 {
			n++
		}
	}
	return n
}

// longestTTL returns the longest time that the key has left on one of the servers.
func (s servers) longestTTL(t *testing.T, key string) (left time.Duration) {
	t.Helper()
	for _, b := range s {
		left = max(left, b.TTL(t, key))
	}
	return left
}

// empty requires that no server has a key, after so long.
func (s servers) empty(t *testing.T, after time.Duration) {
	t.Helper()
	redistest.Eventually(t, after, "no key is left", func() error {
		for i, b := range s {
			if keys := b.Keys(t); len(keys) > 0 {
				return fmt.Errorf("server %d has %v", i, keys)
			}
		}
		return nil
	})
}

// wrapped is a lock in a type of a user's own. It is called as any other kind, and takes the place that its name gives it.
type wrapped struct {
	rlock.Locker
	name string // another name; empty for the lock's own
}

func (w wrapped) Name() string {
	if w.name != "" {
		return w.name
	}
	return w.Locker.Name()
}

// slow is a lock whose answers take their time.
type slow struct {
	rlock.Locker
	by time.Duration
}

func (s slow) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	h, err := s.Locker.TryLock(ctx, opts...)
	time.Sleep(s.by)
	return h, err
}

// within requires that a call returns this error within a time.
func within(t *testing.T, limit time.Duration, want error, call func() error) {
	t.Helper()
	start := time.Now()
	require.ErrorIs(t, call(), want)
	require.LessOrEqual(t, time.Since(start), limit)
}
