package rsemaphore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	semaphoreLimit   = 20 * time.Second        // bounds every wait for what has to come
	semaphoreRecheck = 1250 * time.Millisecond // the longest time until a waiter asks by itself
	semaphoreMoment  = 10 * time.Millisecond   // of fake time, for what happens at once
)

// semaphorePlace is where a claim is tested, with a name that nobody used before.
type semaphorePlace struct {
	*locktest.Server
	name string
}

// semaphore returns the semaphore of a new client.
func (p *semaphorePlace) semaphore(t *testing.T, opts ...rsemaphore.Option) *rsemaphore.Semaphore {
	t.Helper()
	return p.Client(t).GetSemaphore(p.name, opts...)
}

// eachSemaphoreClaim tests claims at a place.
func eachSemaphoreClaim(t *testing.T, where locktest.Place, claims map[string]func(*testing.T, *semaphorePlace)) {
	t.Helper()
	for what, claim := range claims {
		t.Run(what, func(t *testing.T) {
			where(t, func(t *testing.T, s *locktest.Server) {
				claim(t, &semaphorePlace{Server: s, name: "semaphoretest:" + uuid.NewString()})
			})
		})
	}
}

func give(t *testing.T, s *rsemaphore.Semaphore, n int) {
	t.Helper()
	set, err := s.TrySetPermits(t.Context(), n)
	require.NoError(t, err)
	require.True(t, set, "the semaphore is new")
}

func take(t *testing.T, s *rsemaphore.Semaphore, n int) {
	t.Helper()
	require.NoError(t, s.Acquire(t.Context(), n))
}

func release(t *testing.T, s *rsemaphore.Semaphore, n int) {
	t.Helper()
	require.NoError(t, s.Release(t.Context(), n))
}

func requireThere(t *testing.T, s *rsemaphore.Semaphore, n int) {
	t.Helper()
	there, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, there, "permits available")
}

// tried returns what TryAcquire said.
func tried(t *testing.T, s *rsemaphore.Semaphore, n int, opts ...rsemaphore.AcquireOption) bool {
	t.Helper()
	ok, err := s.TryAcquire(t.Context(), n, opts...)
	require.NoError(t, err)
	return ok
}

// beginTake calls Acquire on a goroutine of its own.
func beginTake(ctx context.Context, s *rsemaphore.Semaphore, n int) <-chan error {
	done := make(chan error, 1) // room for the result, so that the goroutine ends in any case
	go func() { done <- s.Acquire(ctx, n) }()
	return done
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(semaphoreLimit):
		require.Fail(t, "the call has not returned")
		return nil
	}
}

func waits(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.Fail(t, "the call has returned", "with %v", err)
	default:
	}
}

// subscribed waits until so many clients listen to a semaphore.
func (p *semaphorePlace) subscribed(t *testing.T, n int) {
	t.Helper()
	redistest.AwaitSubscribers(t, p.Redis, "redisson_sc:{"+p.name+"}", n)
}

// eventually waits for what another goroutine or process does; in a bubble time passes meanwhile.
func eventually(t *testing.T, cond func(ctx context.Context) bool) {
	t.Helper()
	end := time.After(semaphoreLimit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond(t.Context()) {
		select {
		case <-tick.C:
		case <-end:
			require.Fail(t, "it has not come")
		}
	}
}

// counter reads a semaphore past everything.
func counter(t *testing.T, rdb redis.UniversalClient, name string) int {
	t.Helper()
	text, err := rdb.Get(t.Context(), name).Result()
	require.NoError(t, err)
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func quietClient(t *testing.T, rdb redis.UniversalClient, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	c, err := redlatch.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}
