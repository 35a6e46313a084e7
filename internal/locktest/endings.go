package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// endings is how holds end, and what their contexts say.
//
//nolint:gochecknoglobals // a constant table
var endings = []claim{
	{"ContextDescendsFromTheOneGiven", contextDescends},
	{"UnlockEndsTheContext", unlockEndsTheContext},
	{"UnlockTwiceIsErrNotHeld", unlockTwiceIsErrNotHeld},
	{"UnlockWorksWithADoneContext", unlockWorksWithADoneContext},
	{"ParentEndsTheContextButNotTheLock", parentEndsTheContext},
	{"LeaseEndsTheContext", leaseEndsTheContext},
	{"MaxHoldEndsTheContext", maxHoldEndsTheContext},
	{"LossEndsTheContext", lossEndsTheContext},
	{"UnlockAfterLossFreesNobody", unlockAfterLossFreesNobody},
	{"ExtendSetsTheLease", extendSetsTheLease},
	{"ExtendAfterTheEndFails", extendAfterTheEndFails},
	{"DoReleases", doReleases},
	{"DoTellsOfALoss", doTellsOfALoss},
}

// shortLease makes a loss show after 0.3 s.
//
//nolint:gochecknoglobals // a constant
var shortLease = redlatch.WithLease(900 * time.Millisecond)

func contextDescends(t *testing.T, r *rig) {
	l := r.lock(t)
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Minute)
	defer cancel()
	h := acquire(t, ctx, l)
	assert.Equal(t, "value", h.Context().Value(key{}))
	assert.Nil(t, h.Context().Value("no such key"))
	got, _ := h.Context().Deadline()
	want, _ := ctx.Deadline()
	assert.Equal(t, want, got)
	assert.Greater(t, time.Until(h.Deadline()), time.Second, "exclusion is promised for most of the lease")
	live(t, h.Context())
	unlock(t, h)
}

func unlockEndsTheContext(t *testing.T, r *rig) {
	h := acquire(t, t.Context(), r.lock(t))
	live(t, h.Context())
	child, cancel := context.WithTimeout(h.Context(), time.Hour)
	defer cancel()
	unlock(t, h)
	ended(t, h.Context(), rlock.ErrUnlocked)
	ended(t, child, rlock.ErrUnlocked)
	require.Equal(t, context.Canceled, h.Context().Err()) //nolint:testifylint // the very value, as package context has it
}

func unlockTwiceIsErrNotHeld(t *testing.T, r *rig) {
	a, b := r.lock(t), r.lock(t)
	h := acquire(t, t.Context(), a)
	unlock(t, h)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	other := acquire(t, t.Context(), b)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	live(t, other.Context())
	refused(t, a)
	unlock(t, other)
}

func unlockWorksWithADoneContext(t *testing.T, r *rig) {
	l := r.lock(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := acquire(t, ctx, l)
	cancel()
	require.NoError(t, h.Unlock(ctx))
	free(t, l)
}

func parentEndsTheContext(t *testing.T, r *rig) {
	l := r.lock(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	h := acquire(t, ctx, l)
	cancel(assert.AnError)
	ended(t, h.Context(), assert.AnError)
	refused(t, l)
	unlock(t, h)
	free(t, l)
}

func leaseEndsTheContext(t *testing.T, r *rig) {
	const lease = 200 * time.Millisecond
	a, b := r.lock(t), r.lock(t)
	start := time.Now()
	h := acquire(t, t.Context(), a, rlock.WithLease(lease))
	assert.LessOrEqual(t, h.Deadline().Sub(start), time.Since(start)+lease-2*time.Millisecond, "the margin")
	ended(t, h.Context(), rlock.ErrLost)
	unlock(t, acquire(t, t.Context(), b))
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
}

func maxHoldEndsTheContext(t *testing.T, r *rig) {
	a, b := r.lock(t), r.lock(t)
	for _, most := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		h, err := a.Lock(ctx, rlock.WithMaxHold(most))
		cancel()
		require.NoError(t, err, "max hold %v", most)
		select {
		case <-h.Context().Done():
		case <-time.After(limit):
			require.Fail(t, "the context has not ended")
		}
		unlock(t, acquire(t, t.Context(), b))
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	}
}

func lossEndsTheContext(t *testing.T, r *rig) {
	l := r.lock(t, shortLease)
	h := acquire(t, t.Context(), l)
	child, cancel := context.WithCancel(h.Context())
	defer cancel()
	r.wipe(t)
	ended(t, h.Context(), rlock.ErrLost)
	ended(t, child, rlock.ErrLost)
	assert.Contains(t, context.Cause(h.Context()).Error(), r.name, "causes name their lock")
	free(t, l)
}

func unlockAfterLossFreesNobody(t *testing.T, r *rig) {
	a, b, c := r.lock(t), r.lock(t), r.lock(t)
	h := acquire(t, t.Context(), a)
	r.wipe(t)
	other := acquire(t, t.Context(), b)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	refused(t, c)
	live(t, other.Context())
	unlock(t, other)
}

func extendSetsTheLease(t *testing.T, r *rig) {
	l, other := r.lock(t), r.lock(t)
	h := acquire(t, t.Context(), l)
	require.NoError(t, h.Extend(t.Context(), time.Hour))
	assert.Greater(t, time.Until(h.Deadline()), 50*time.Minute)
	require.NoError(t, h.Extend(t.Context(), 150*time.Millisecond), "it may end sooner too")
	assert.Less(t, time.Until(h.Deadline()), 150*time.Millisecond)
	unlock(t, acquire(t, t.Context(), other))
	ended(t, h.Context(), rlock.ErrLost)
}

func extendAfterTheEndFails(t *testing.T, r *rig) {
	l := r.lock(t)
	h := acquire(t, t.Context(), l)
	unlock(t, h)
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrNotHeld)
	h = acquire(t, t.Context(), l)
	r.wipe(t)
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
	ended(t, h.Context(), rlock.ErrLost)
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
	free(t, l)
}

func doReleases(t *testing.T, r *rig) {
	a, b := r.lock(t), r.lock(t)
	require.NoError(t, a.Do(t.Context(), func(ctx context.Context) error {
		live(t, ctx)
		refused(t, b)
		return nil
	}))
	free(t, b)
	require.ErrorIs(t, a.Do(t.Context(), func(context.Context) error { return assert.AnError }), assert.AnError)
	free(t, b)
	assert.PanicsWithValue(t, "boom", func() {
		_ = a.Do(t.Context(), func(context.Context) error { panic("boom") }) // it does not return
	})
	free(t, b)
	require.ErrorIs(t, a.Do(t.Context(), nil), redlatch.ErrInvalid)
	free(t, b)
}

func doTellsOfALoss(t *testing.T, r *rig) {
	l := r.lock(t, shortLease)
	err := l.Do(t.Context(), func(ctx context.Context) error {
		r.wipe(t)
		<-ctx.Done()
		return errors.Join(assert.AnError, ctx.Err())
	})
	require.ErrorIs(t, err, rlock.ErrLost)
	require.ErrorIs(t, err, assert.AnError)
	require.ErrorIs(t, err, context.Canceled)
}
