package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rlock"
)

// nesting is who re-enters, and what a level is worth.
//
//nolint:gochecknoglobals // a constant table
var nesting = []claim{
	{"NestsByLineage", nestsByLineage},
	{"NestsThroughDerivedContexts", nestsThroughDerivedContexts},
	{"NestedHoldOutlivesTheOuterOne", nestedHoldOutlivesTheOuterOne},
	{"NestedHoldEndsWithItsOwnContext", nestedHoldEndsWithItsOwnContext},
	{"NestedLeaseEndsOnlyItsLevel", nestedLeaseEndsOnlyItsLevel},
	{"LossEndsAllLevels", lossEndsAllLevels},
	{"DetachedContextIsAStranger", detachedContextIsAStranger},
	{"WithoutReentryIsErrHeld", withoutReentryIsErrHeld},
	{"EndedHoldIsNoLineage", endedHoldIsNoLineage},
	{"AnotherClientIsNoLineage", anotherClientIsNoLineage},
	{"SharersOfAHoldExcludeOnAnotherLock", sharersExcludeOnAnotherLock},
	{"AnotherLockIsAnOrdinaryChild", anotherLockIsAnOrdinaryChild},
}

func nestsByLineage(t *testing.T, r *rig) {
	l, other := r.lock(t), r.lock(t)
	outer := acquire(t, t.Context(), l)
	middle, err := l.TryLock(outer.Context())
	require.NoError(t, err)
	var innermost *rlock.Hold
	require.NoError(t, l.Do(middle.Context(), func(ctx context.Context) error {
		innermost = acquire(t, ctx, l)
		unlock(t, innermost)
		return nil
	}))
	for _, h := range []*rlock.Hold{middle, innermost} {
		assert.Equal(t, outer.Owner(), h.Owner())
		assert.Equal(t, outer.Token(), h.Token())
	}
	refused(t, other)
	unlock(t, middle)
	refused(t, other)
	live(t, outer.Context())
	unlock(t, outer)
	free(t, other)
}

func nestsThroughDerivedContexts(t *testing.T, r *rig) {
	l := r.lock(t)
	outer := acquire(t, t.Context(), l)
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(outer.Context(), key{}, "value"), time.Minute)
	defer cancel()
	inner, err := l.TryLock(ctx)
	require.NoError(t, err)
	assert.Equal(t, "value", inner.Context().Value(key{}))
	deadline, ok := inner.Context().Deadline()
	want, _ := ctx.Deadline()
	assert.True(t, ok)
	assert.Equal(t, want, deadline)
	unlock(t, inner)
	unlock(t, outer)
}

func nestedHoldOutlivesTheOuterOne(t *testing.T, r *rig) {
	l, other := r.lock(t), r.lock(t)
	request, cancel := context.WithCancel(t.Context())
	defer cancel()
	outer := acquire(t, request, l)
	middle := acquire(t, outer.Context(), l)
	inner := acquire(t, middle.Context(), l)
	unlock(t, outer)
	ended(t, outer.Context(), rlock.ErrUnlocked)
	live(t, middle.Context())
	unlock(t, middle)
	live(t, inner.Context())
	refused(t, other)
	again := acquire(t, inner.Context(), l)
	unlock(t, again)
	cancel()
	ended(t, inner.Context(), context.Canceled)
	refused(t, other)
	unlock(t, inner)
	free(t, other)
}

func nestedHoldEndsWithItsOwnContext(t *testing.T, r *rig) {
	l, other := r.lock(t), r.lock(t)
	outer := acquire(t, t.Context(), l)
	ctx, cancel := context.WithCancelCause(outer.Context())
	inner := acquire(t, ctx, l)
	cancel(assert.AnError)
	ended(t, inner.Context(), assert.AnError)
	live(t, outer.Context())
	unlock(t, inner)
	refused(t, other)
	unlock(t, outer)
}

func nestedLeaseEndsOnlyItsLevel(t *testing.T, r *rig) {
	l, other := r.lock(t), r.lock(t)
	outer := acquire(t, t.Context(), l)
	inner := acquire(t, outer.Context(), l, rlock.WithLease(50*time.Millisecond))
	ended(t, inner.Context(), rlock.ErrLost)
	live(t, outer.Context())
	refused(t, other)
	require.ErrorIs(t, inner.Unlock(t.Context()), rlock.ErrNotHeld)
	live(t, outer.Context())
	unlock(t, outer)
	free(t, other)
}

func lossEndsAllLevels(t *testing.T, r *rig) {
	l := r.lock(t, shortLease)
	outer := acquire(t, t.Context(), l)
	inner := acquire(t, outer.Context(), l)
	r.wipe(t)
	ended(t, inner.Context(), rlock.ErrLost)
	ended(t, outer.Context(), rlock.ErrLost)
	require.ErrorIs(t, inner.Unlock(t.Context()), rlock.ErrNotHeld)
	require.ErrorIs(t, outer.Unlock(t.Context()), rlock.ErrNotHeld)
}

func detachedContextIsAStranger(t *testing.T, r *rig) {
	l := r.lock(t)
	type key struct{}
	h := acquire(t, context.WithValue(t.Context(), key{}, "value"), l)
	detached := rlock.Detach(h.Context())
	assert.Equal(t, "value", detached.Value(key{}))
	_, err := l.TryLock(detached)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	_, err = l.Lock(detached, rlock.WithWait(20*time.Millisecond))
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	_, err = l.Lock(detached, rlock.WithWait(20*time.Millisecond), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "it would not nest")
	unlock(t, h)
	ended(t, detached, rlock.ErrUnlocked)
}

func withoutReentryIsErrHeld(t *testing.T, r *rig) {
	l := r.lock(t)
	h := acquire(t, t.Context(), l, rlock.WithoutReentry())
	_, err := l.Lock(h.Context(), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrHeld)
	_, err = l.TryLock(h.Context(), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrHeld)
	inner := acquire(t, h.Context(), l)
	_, err = l.Lock(inner.Context(), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrHeld)
	live(t, h.Context())
	unlock(t, inner)
	unlock(t, h)
}

func endedHoldIsNoLineage(t *testing.T, r *rig) {
	l := r.lock(t)
	h := acquire(t, t.Context(), l)
	ctx := context.WithoutCancel(h.Context())
	unlock(t, h)
	next, err := l.TryLock(ctx, rlock.WithoutReentry())
	require.NoError(t, err, "nothing to nest in")
	_, err = l.TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	unlock(t, next)
}

func anotherClientIsNoLineage(t *testing.T, r *rig) {
	a, b := r.lock(t), r.lock(t)
	h := acquire(t, t.Context(), a)
	_, err := b.TryLock(h.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	unlock(t, h)
}

func sharersExcludeOnAnotherLock(t *testing.T, r *rig) {
	c := r.Client(t)
	a, b := r.env.New(c, r.name+":a"), r.env.New(c, r.name+":b")
	shared := acquire(t, t.Context(), a)
	first := acquire(t, shared.Context(), b)
	_, err := b.TryLock(shared.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "B is no part of what the two share")
	waiting := begin(func() (*rlock.Hold, error) { return b.Lock(shared.Context()) })
	unlock(t, first)
	second, err := fetch(t, waiting)
	require.NoError(t, err)
	again, err := a.TryLock(second.Context())
	require.NoError(t, err, "the lineage of A goes through holds of B")
	unlock(t, again)
	unlock(t, second)
	unlock(t, shared)
}

func anotherLockIsAnOrdinaryChild(t *testing.T, r *rig) {
	c := r.Client(t)
	a, b := r.env.New(c, r.name+":a"), r.env.New(c, r.name+":b")
	outer := acquire(t, t.Context(), a)
	child := acquire(t, outer.Context(), b)
	unlock(t, outer)
	ended(t, child.Context(), rlock.ErrUnlocked)
	refused(t, b)
	unlock(t, child)
	free(t, b)
}
