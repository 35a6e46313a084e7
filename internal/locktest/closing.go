package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// closing is what Close does to the locks of a client.
//
//nolint:gochecknoglobals // a constant table
var closing = []claim{
	{name: "CloseEndsWaitsAndContexts", test: closeEndsWaitsAndContexts, alone: true},
	{name: "CloseWaitsForHolders", test: closeWaitsForHolders},
	{name: "CloseReleasesWhatIsHeld", test: closeReleasesWhatIsHeld},
	{name: "CloseAbandonsWhatIsHeld", test: closeAbandonsWhatIsHeld},
	{name: "ClosedClientRefuses", test: closedClientRefuses},
	{name: "LeavesNoKeyBehind", test: leavesNoKeyBehind},
}

func closeEndsWaitsAndContexts(t *testing.T, r *rig) {
	c := r.Client(t)
	l, other := r.env.New(c, r.name), r.lock(t)
	h := Acquire(t, t.Context(), l)
	taken := Acquire(t, t.Context(), r.env.New(r.Client(t), r.name+":2"))
	local := Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) })
	remote := Begin(func() (*rlock.Hold, error) { return r.env.New(c, r.name+":2").Lock(t.Context()) })
	closed := Begin(func() (*rlock.Hold, error) { return nil, c.Close() })
	for _, waiting := range []<-chan Outcome{local, remote} {
		Failed(t, waiting, redlatch.ErrClosed)
	}
	Ended(t, h.Context(), redlatch.ErrClosed)
	Refused(t, other)
	Unlock(t, h)
	require.NoError(t, Fetch(t, closed).Err)
	Free(t, other)
	Unlock(t, taken)
}

func closeWaitsForHolders(t *testing.T, r *rig) {
	c := r.Client(t)
	h := Acquire(t, t.Context(), r.env.New(c, r.name))
	inner := Acquire(t, h.Context(), r.env.New(c, r.name))
	closed := Begin(func() (*rlock.Hold, error) { return nil, c.Close() })
	Ended(t, inner.Context(), redlatch.ErrClosed)
	Unlock(t, inner)
	select {
	case <-closed:
		require.Fail(t, "Close has not waited for the outer level")
	default:
	}
	Unlock(t, h)
	require.NoError(t, Fetch(t, closed).Err)
}

func closeReleasesWhatIsHeld(t *testing.T, r *rig) {
	c := r.Client(t, redlatch.WithCloseGrace(20*time.Millisecond))
	other := r.rival(t)
	h := Acquire(t, t.Context(), r.env.New(c, r.name))
	require.NoError(t, c.Close())
	Ended(t, h.Context(), redlatch.ErrClosed)
	Free(t, other)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
}

func closeAbandonsWhatIsHeld(t *testing.T, r *rig) {
	c := r.Client(t, redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose(), redlatch.WithLease(500*time.Millisecond))
	other := r.rival(t)
	Acquire(t, t.Context(), r.env.New(c, r.name))
	require.NoError(t, c.Close())
	_, err := other.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "it is left to its lease")
	Unlock(t, Acquire(t, t.Context(), other))
}

func closedClientRefuses(t *testing.T, r *rig) {
	c := r.Client(t)
	l := r.env.New(c, r.name)
	Free(t, l)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "a second Close")
	_, err := l.Lock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrClosed)
	_, err = l.TryLock(t.Context(), rlock.WithWait(time.Minute))
	require.ErrorIs(t, err, redlatch.ErrClosed)
	err = l.Do(t.Context(), func(context.Context) error { return assert.AnError })
	require.ErrorIs(t, err, redlatch.ErrClosed)
	require.NotErrorIs(t, err, assert.AnError)
}

func leavesNoKeyBehind(t *testing.T, r *rig) {
	a, b := r.lock(t), r.rival(t)
	h := Acquire(t, t.Context(), a)
	waiting := Begin(func() (*rlock.Hold, error) { return b.Lock(t.Context()) })
	for _, key := range r.env.Keys(r.name) {
		left, err := r.Redis.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, left, "%s has a TTL", key)
	}
	Unlock(t, h)
	h = Next(t, waiting)
	Unlock(t, h)
	for _, key := range r.env.Keys(r.name) {
		n, err := r.Redis.Exists(t.Context(), key).Result()
		require.NoError(t, err)
		require.Zero(t, n, "%s is gone", key)
	}
}
