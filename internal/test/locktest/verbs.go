package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rlock"
)

// Acquire requires that Lock succeeds.
func Acquire(t *testing.T, ctx context.Context, l rlock.Locker, opts ...rlock.Option) *rlock.Hold { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	h, err := l.Lock(ctx, opts...)
	require.NoError(t, err)
	return h
}

// Unlock requires that Unlock succeeds.
func Unlock(t *testing.T, h *rlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(t.Context()))
}

// Refused requires that the lock is taken, as a stranger sees it.
func Refused(t *testing.T, l rlock.Locker) {
	t.Helper()
	_, err := l.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "the lock is held")
}

// Free requires that the lock is free.
func Free(t *testing.T, l rlock.Locker) {
	t.Helper()
	h, err := l.TryLock(t.Context())
	require.NoError(t, err, "the lock is free")
	Unlock(t, h)
}

// Ended waits until a context has ended, and requires the cause.
func Ended(t *testing.T, ctx context.Context, cause error) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	select {
	case <-ctx.Done():
		require.ErrorIs(t, context.Cause(ctx), cause)
		require.Error(t, ctx.Err())
	case <-time.After(limit):
		require.Fail(t, "the context has not ended", "waiting for %v", cause)
	}
}

// Live requires that a context has not ended.
func Live(t *testing.T, ctx context.Context) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	require.NoError(t, ctx.Err())
	select {
	case <-ctx.Done():
		require.Fail(t, "the context has ended", "%v", context.Cause(ctx))
	default:
	}
}

// Outcome is what an acquiring call returned.
type Outcome struct {
	Hold *rlock.Hold
	Err  error
	// After is how long the call took.
	After time.Duration
}

// Begin calls fn on a goroutine of its own.
func Begin(fn func() (*rlock.Hold, error)) <-chan Outcome {
	done := make(chan Outcome, 1) // room for the result, so that the goroutine ends whether or not it is fetched
	start := time.Now()
	go func() {
		h, err := fn()
		done <- Outcome{h, err, time.Since(start)}
	}()
	return done
}

// Fetch waits for what Begin has begun.
func Fetch(t *testing.T, done <-chan Outcome) Outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(limit):
		require.Fail(t, "the call has not returned")
		return Outcome{}
	}
}

// Next waits for a hold that Begin has begun to acquire.
func Next(t *testing.T, done <-chan Outcome) *rlock.Hold {
	t.Helper()
	o := Fetch(t, done)
	require.NoError(t, o.Err)
	return o.Hold
}

// Failed requires that a call which Begin has begun returns this error.
func Failed(t *testing.T, done <-chan Outcome, want error) {
	t.Helper()
	require.ErrorIs(t, Fetch(t, done).Err, want)
}
