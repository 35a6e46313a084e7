package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
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
	c := r.Client(t, redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose(), redlatch.WithWatchdogTimeout(500*time.Millisecond))
	other := r.rival(t)
	h := Acquire(t, t.Context(), r.env.New(c, r.name))
	until := h.ExpiresAt()
	require.NoError(t, c.Close())
	next, err := other.TryLock(t.Context())
	if err != nil {
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "it is left to its lease")
		next = Acquire(t, t.Context(), other)
	}
	require.Greater(t, time.Now(), until)
	Unlock(t, next)
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
	r.settles(t, func() error {
		for _, key := range r.env.Keys(r.name) {
			if left, err := r.Redis.PTTL(t.Context(), key).Result(); err != nil || left <= 0 {
				return fmt.Errorf("the TTL of %s is %v (%w)", key, left, err)
			}
		}
		return nil
	})
	Unlock(t, h)
	h = Next(t, waiting)
	Unlock(t, h)
	r.settles(t, func() error { return r.gone(t, r.name) })
}

// gone returns nil if none of a lock's keys is there, but for some that do not count.
func (r *rig) gone(t *testing.T, name string, but ...string) error {
	t.Helper()
	for _, key := range r.env.Keys(name) {
		if slices.Contains(but, key) {
			continue
		}
		if n, err := r.Redis.Exists(t.Context(), key).Result(); err != nil || n > 0 {
			return errors.Join(fmt.Errorf("%s is left", key), err)
		}
	}
	return nil
}

// free requires that the lock is free: at once, or soon where it is made of several.
func (r *rig) free(t *testing.T, l rlock.Locker) {
	t.Helper()
	if !r.env.Some && !r.env.Rest {
		Free(t, l)
		return
	}
	redistest.Eventually(t, limit, "the lock is free", func() error {
		h, err := l.TryLock(t.Context())
		if err == nil {
			Unlock(t, h)
		}
		return err
	})
}

// settles requires something of the keys: at once, or soon where some of them are enough for the lock.
func (r *rig) settles(t *testing.T, cond func() error) {
	t.Helper()
	if r.env.Some {
		redistest.Eventually(t, limit, "the keys settle", cond)
		return
	}
	require.NoError(t, cond())
}
