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
	{name: "ContextDescendsFromTheOneGiven", test: contextDescends},
	{name: "UnlockEndsTheContext", test: unlockEndsTheContext},
	{name: "UnlockTwiceIsErrNotHeld", test: unlockTwiceIsErrNotHeld},
	{name: "UnlockWorksWithADoneContext", test: unlockWorksWithADoneContext},
	{name: "ParentEndsTheContextButNotTheLock", test: parentEndsTheContext},
	{name: "LeaseEndsTheContext", test: leaseEndsTheContext},
	{name: "RenewedLeaseIsRenewed", test: renewedLeaseIsRenewed},
	{name: "LeaseIsFixedOrRenewed", test: leaseIsFixedOrRenewed},
	{name: "DoneContextReleases", test: doneContextReleases},
	{name: "DoneContextReleasesNothingTwice", test: doneContextReleasesNothingTwice},
	{name: "DoTellsOfADoneContext", test: doTellsOfADoneContext},
	{name: "MaxHoldEndsTheContext", test: maxHoldEndsTheContext},
	{name: "LossEndsTheContext", test: lossEndsTheContext},
	{name: "UnlockAfterLossFreesNobody", test: unlockAfterLossFreesNobody},
	{name: "ExtendSetsTheLease", test: extendSetsTheLease},
	{name: "ExtendAfterTheEndFails", test: extendAfterTheEndFails},
	{name: "DoReleases", test: doReleases},
	{name: "DoTellsOfALoss", test: doTellsOfALoss},
}

// shortLease makes a loss show after two thirds of a second.
//
//nolint:gochecknoglobals // a constant
var shortLease = redlatch.WithWatchdogTimeout(2 * time.Second)

func contextDescends(t *testing.T, r *rig) {
	l := r.lock(t)
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Minute)
	defer cancel()
	h := Acquire(t, ctx, l)
	assert.Equal(t, "value", h.Context().Value(key{}))
	assert.Nil(t, h.Context().Value("no such key"))
	got, _ := h.Context().Deadline()
	want, _ := ctx.Deadline()
	assert.Equal(t, want, got)
	assert.Greater(t, time.Until(h.ExpiresAt()), time.Second, "exclusion is promised for most of the lease")
	Live(t, h.Context())
	Unlock(t, h)
}

func unlockEndsTheContext(t *testing.T, r *rig) {
	h := Acquire(t, t.Context(), r.lock(t))
	Live(t, h.Context())
	child, cancel := context.WithTimeout(h.Context(), time.Hour)
	defer cancel()
	Unlock(t, h)
	Ended(t, h.Context(), rlock.ErrUnlocked)
	Ended(t, child, rlock.ErrUnlocked)
	require.Equal(t, context.Canceled, h.Context().Err()) //nolint:testifylint // the very value, as package context has it
}

func unlockTwiceIsErrNotHeld(t *testing.T, r *rig) {
	a, b := r.lock(t), r.rival(t)
	h := Acquire(t, t.Context(), a)
	Unlock(t, h)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	other := Acquire(t, t.Context(), b)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	Live(t, other.Context())
	Refused(t, a)
	Unlock(t, other)
}

func unlockWorksWithADoneContext(t *testing.T, r *rig) {
	l := r.lock(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := Acquire(t, ctx, l)
	cancel()
	require.NoError(t, h.Unlock(ctx))
	Free(t, l)
}

func parentEndsTheContext(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	h := Acquire(t, ctx, l)
	cancel(assert.AnError)
	Ended(t, h.Context(), assert.AnError)
	Refused(t, other)
	Unlock(t, h)
	Free(t, l)
}

func leaseEndsTheContext(t *testing.T, r *rig) {
	const lease = 200 * time.Millisecond
	a, b := r.lock(t), r.rival(t)
	start := time.Now()
	h := Acquire(t, t.Context(), a, rlock.WithFixedLease(lease))
	assert.LessOrEqual(t, h.ExpiresAt().Sub(start), time.Since(start)+lease-2*time.Millisecond, "the margin")
	Ended(t, h.Context(), rlock.ErrLost)
	Unlock(t, Acquire(t, t.Context(), b))
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
}

func maxHoldEndsTheContext(t *testing.T, r *rig) {
	a, b := r.lock(t), r.rival(t)
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
		Unlock(t, Acquire(t, t.Context(), b))
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	}
}

func lossEndsTheContext(t *testing.T, r *rig) {
	l := r.lock(t, shortLease)
	h := Acquire(t, t.Context(), l)
	child, cancel := context.WithCancel(h.Context())
	defer cancel()
	r.wipe(t)
	Ended(t, h.Context(), rlock.ErrLost)
	Ended(t, child, rlock.ErrLost)
	assert.Contains(t, context.Cause(h.Context()).Error(), r.name, "causes name their lock")
	r.free(t, l)
}

func unlockAfterLossFreesNobody(t *testing.T, r *rig) {
	a, b, c := r.lock(t), r.rival(t), r.lock(t)
	h := Acquire(t, t.Context(), a)
	r.wipe(t)
	other := Acquire(t, t.Context(), b)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	Refused(t, c)
	Live(t, other.Context())
	Unlock(t, other)
}

func renewedLeaseIsRenewed(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	h := Acquire(t, t.Context(), l, rlock.WithRenewedLease(time.Hour))
	assert.Greater(t, time.Until(h.ExpiresAt()), 50*time.Minute)
	Unlock(t, h)
	const lease = 600 * time.Millisecond
	h = Acquire(t, t.Context(), l, rlock.WithRenewedLease(lease))
	assert.LessOrEqual(t, time.Until(h.ExpiresAt()), lease)
	for range 3 {
		first := h.ExpiresAt()
		require.Eventually(t, func() bool { return h.ExpiresAt().After(first) }, limit, time.Millisecond, "it is renewed")
	}
	Live(t, h.Context())
	Refused(t, other)
	Unlock(t, h)
	r.free(t, other)
}

func leaseIsFixedOrRenewed(t *testing.T, r *rig) {
	_, err := r.lock(t).TryLock(t.Context(), rlock.WithFixedLease(time.Second), rlock.WithRenewedLease(time.Second))
	require.ErrorIs(t, err, redlatch.ErrInvalid)
}

func doneContextReleases(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	h := Acquire(t, ctx, l, rlock.WithReleaseOnDone())
	Refused(t, other)
	why := errors.New("the request is over")
	cancel(why)
	Unlock(t, Acquire(t, t.Context(), other))
	Ended(t, h.Context(), why)
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
}

func doneContextReleasesNothingTwice(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := Acquire(t, ctx, l, rlock.WithReleaseOnDone())
	Unlock(t, h)
	Ended(t, h.Context(), rlock.ErrUnlocked)
	next := Acquire(t, t.Context(), other)
	cancel()
	Refused(t, l)
	Live(t, next.Context())
	Unlock(t, next)
}

func doTellsOfADoneContext(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the request is over")
	err := l.Do(ctx, func(context.Context) error {
		cancel(why)
		Unlock(t, Acquire(t, t.Context(), other))
		return nil
	}, rlock.WithReleaseOnDone())
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, rlock.ErrLost)
}

func extendSetsTheLease(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	h := Acquire(t, t.Context(), l)
	require.NoError(t, h.Extend(t.Context(), time.Hour))
	assert.Greater(t, time.Until(h.ExpiresAt()), 50*time.Minute)
	if err := h.Extend(t.Context(), 150*time.Millisecond); err != nil { // it may end sooner too, and on a slow machine it ends before the answer
		require.ErrorIs(t, err, rlock.ErrLost)
	}
	assert.Less(t, time.Until(h.ExpiresAt()), 150*time.Millisecond)
	Unlock(t, Acquire(t, t.Context(), other))
	Ended(t, h.Context(), rlock.ErrLost)
}

func extendAfterTheEndFails(t *testing.T, r *rig) {
	l := r.lock(t)
	h := Acquire(t, t.Context(), l)
	Unlock(t, h)
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrNotHeld)
	h = Acquire(t, t.Context(), l)
	r.wipe(t)
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
	Ended(t, h.Context(), rlock.ErrLost)
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
	r.free(t, l)
}

func doReleases(t *testing.T, r *rig) {
	a, b := r.lock(t), r.rival(t)
	require.NoError(t, a.Do(t.Context(), func(ctx context.Context) error {
		Live(t, ctx)
		Refused(t, b)
		return nil
	}))
	Free(t, b)
	require.ErrorIs(t, a.Do(t.Context(), func(context.Context) error { return assert.AnError }), assert.AnError)
	Free(t, b)
	assert.PanicsWithValue(t, "boom", func() {
		_ = a.Do(t.Context(), func(context.Context) error { panic("boom") }) // it does not return
	})
	Free(t, b)
	require.ErrorIs(t, a.Do(t.Context(), nil), redlatch.ErrInvalid)
	Free(t, b)
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
