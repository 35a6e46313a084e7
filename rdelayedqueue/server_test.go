package rdelayedqueue_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// places are the kinds of Redis that must behave alike.
var places = map[string]locktest.Place{"InMemory": locktest.InMemory, "Server": locktest.OnServer, "Cluster": locktest.OnCluster}

func TestServersBehaveAlike(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			place(t, func(t *testing.T, s *locktest.Server) {
				quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
				open := func(visibility time.Duration) *rdelayedqueue.Queue[job] {
					return redlatch.GetDelayedQueue[job](s.Client(t, quiet), "jobs-"+t.Name(), rdelayedqueue.WithVisibility(visibility))
				}
				passThrough(t, func() *rdelayedqueue.Queue[job] { return open(10 * time.Second) })
				pastVisibility(t, open(time.Second))
			})
		})
	}
}

// passThrough offers to consumers that sleep, some of it for later, and expects each message once.
func passThrough(t *testing.T, open func() *rdelayedqueue.Queue[job]) {
	t.Helper()
	var mu sync.Mutex
	handled := map[int]int{}
	handle := func(_ context.Context, m *rdelayedqueue.Message[job]) error {
		mu.Lock()
		defer mu.Unlock()
		handled[m.Value.N]++
		if m.Value.N%10 == 0 && m.Attempt == 1 {
			return fmt.Errorf("the first attempt at %d fails", m.Value.N)
		}
		return nil
	}
	soon := rdelayedqueue.WithBackoff(func(int) time.Duration { return 10 * time.Millisecond })
	stops := []func() error{
		consume(t, open(), handle, rdelayedqueue.WithConcurrency(4), soon),
		consume(t, open(), handle, rdelayedqueue.WithConcurrency(4), soon),
	}
	q := open()
	for i := range 100 {
		_, err := q.Offer(t.Context(), job{N: i}, time.Duration(i%5)*20*time.Millisecond, rdelayedqueue.WithID(uuid.NewString()))
		require.NoError(t, err)
	}
	redistest.Eventually(t, patience, "all are done", func() error {
		time.Sleep(time.Millisecond) // in a bubble time passes only so
		s, err := q.Stats(t.Context())
		if err == nil && s != (rdelayedqueue.Stats{}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	for i := range 100 {
		want := 1
		if i%10 == 0 {
			want = 2
		}
		assert.Equal(t, want, handled[i], "deliveries of %d", i)
	}
}

// pastVisibility lets a claim run out.
func pastVisibility(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	id := offer(t, q, "slow", 0)
	first := take(t, q)
	again := take(t, q)
	assert.Equal(t, []any{id, 2}, []any{again.ID, again.Attempt})
	assert.ErrorIs(t, first.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
	assert.NoError(t, again.Ack(t.Context()))
	assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
}
