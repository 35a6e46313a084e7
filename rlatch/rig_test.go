package rlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlatch"
)

const (
	limit   = 20 * time.Second        // bounds every wait for what has to come
	recheck = 1250 * time.Millisecond // the longest time until a wait queue reads by itself
	moment  = 10 * time.Millisecond   // of fake time, for what happens at once
)

// place is where a claim is tested, with a name that nobody used before.
type place struct {
	*locktest.Server
	name string
}

// latch returns the latch of a new client.
func (p *place) latch(t *testing.T) *rlatch.Latch {
	t.Helper()
	return p.Client(t).GetCountDownLatch(p.name)
}

func eachClaim(t *testing.T, where locktest.Place, claims map[string]func(*testing.T, *place)) {
	t.Helper()
	for what, claim := range claims {
		t.Run(what, func(t *testing.T) {
			where(t, func(t *testing.T, s *locktest.Server) {
				claim(t, &place{Server: s, name: "latchtest:" + uuid.NewString()})
			})
		})
	}
}

func set(t *testing.T, l *rlatch.Latch, n int) {
	t.Helper()
	ok, err := l.TrySetCount(t.Context(), n)
	require.NoError(t, err)
	require.True(t, ok, "there was no count")
}

func down(t *testing.T, l *rlatch.Latch) {
	t.Helper()
	require.NoError(t, l.CountDown(t.Context()))
}

func requireCount(t *testing.T, l *rlatch.Latch, n int) {
	t.Helper()
	count, err := l.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, count)
}

// begin calls Await on a goroutine of its own.
func begin(ctx context.Context, l *rlatch.Latch) <-chan error {
	done := make(chan error, 1) // room for the result, so that the goroutine ends in any case
	go func() { done <- l.Await(ctx) }()
	return done
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
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

// subscribed waits until so many clients listen to the latch.
func (p *place) subscribed(t *testing.T, n int) {
	t.Helper()
	redistest.AwaitSubscribers(t, p.Redis, "redisson_countdownlatch__channel__{"+p.name+"}", n)
}
