package locktest

import (
	"context"
	"errors"
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
	{name: "NestsByLineage", test: nestsByLineage},
	{name: "NestsThroughDerivedContexts", test: nestsThroughDerivedContexts},
	{name: "NestedHoldOutlivesTheOuterOne", test: nestedHoldOutlivesTheOuterOne},
	{name: "NestedHoldEndsWithItsOwnContext", test: nestedHoldEndsWithItsOwnContext},
	{name: "NestedLeaseEndsOnlyItsLevel", test: nestedLeaseEndsOnlyItsLevel},
	{name: "LossEndsAllLevels", test: lossEndsAllLevels},
	{name: "DetachedContextIsAStranger", test: detachedContextIsAStranger, alone: true},
	{name: "WithoutReentryIsErrHeld", test: withoutReentryIsErrHeld},
	{name: "EndedHoldIsNoLineage", test: endedHoldIsNoLineage, alone: true},
	{name: "AnotherClientIsNoLineage", test: anotherClientIsNoLineage, alone: true},
	{name: "SharersOfAHoldExcludeOnAnotherLock", test: sharersExcludeOnAnotherLock, alone: true},
	{name: "AnotherLockIsAnOrdinaryChild", test: anotherLockIsAnOrdinaryChild},
}

func nestsByLineage(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	outer := Acquire(t, t.Context(), l)
	middle, err := l.TryLock(outer.Context())
	require.NoError(t, err)
	var innermost *rlock.Hold
	require.NoError(t, l.Do(middle.Context(), func(ctx context.Context) error {
		innermost = Acquire(t, ctx, l)
		Unlock(t, innermost)
		return nil
	}))
	for _, h := range []*rlock.Hold{middle, innermost} {
		assert.Equal(t, outer.Owner(), h.Owner())
		assert.Equal(t, outer.Token(), h.Token())
	}
	Refused(t, other)
	Unlock(t, middle)
	Refused(t, other)
	Live(t, outer.Context())
	Unlock(t, outer)
	Free(t, other)
}

func nestsThroughDerivedContexts(t *testing.T, r *rig) {
	l := r.lock(t)
	outer := Acquire(t, t.Context(), l)
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
	Unlock(t, inner)
	Unlock(t, outer)
}

func nestedHoldOutlivesTheOuterOne(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	request, cancel := context.WithCancel(t.Context())
	defer cancel()
	outer := Acquire(t, request, l)
	middle := Acquire(t, outer.Context(), l)
	inner := Acquire(t, middle.Context(), l)
	Unlock(t, outer)
	Ended(t, outer.Context(), rlock.ErrUnlocked)
	Live(t, middle.Context())
	Unlock(t, middle)
	Live(t, inner.Context())
	Refused(t, other)
	again := Acquire(t, inner.Context(), l)
	Unlock(t, again)
	cancel()
	Ended(t, inner.Context(), context.Canceled)
	Refused(t, other)
	Unlock(t, inner)
	Free(t, other)
}

func nestedHoldEndsWithItsOwnContext(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	outer := Acquire(t, t.Context(), l)
	ctx, cancel := context.WithCancelCause(outer.Context())
	inner := Acquire(t, ctx, l)
	cancel(assert.AnError)
	Ended(t, inner.Context(), assert.AnError)
	Live(t, outer.Context())
	Unlock(t, inner)
	Refused(t, other)
	Unlock(t, outer)
}

func nestedLeaseEndsOnlyItsLevel(t *testing.T, r *rig) {
	l, other := r.lock(t), r.rival(t)
	outer := Acquire(t, t.Context(), l)
	inner, err := l.Lock(outer.Context(), rlock.WithFixedLease(50*time.Millisecond))
	for errors.Is(err, rlock.ErrLost) { // a slow machine had the answer after the lease
		inner, err = l.Lock(outer.Context(), rlock.WithFixedLease(50*time.Millisecond))
	}
	require.NoError(t, err)
	Ended(t, inner.Context(), rlock.ErrLost)
	Live(t, outer.Context())
	Refused(t, other)
	require.ErrorIs(t, inner.Unlock(t.Context()), rlock.ErrNotHeld)
	Live(t, outer.Context())
	Unlock(t, outer)
	r.free(t, other)
}

func lossEndsAllLevels(t *testing.T, r *rig) {
	l := r.lock(t, shortLease)
	outer := Acquire(t, t.Context(), l)
	inner := Acquire(t, outer.Context(), l)
	r.wipe(t)
	Ended(t, inner.Context(), rlock.ErrLost)
	Ended(t, outer.Context(), rlock.ErrLost)
	require.ErrorIs(t, inner.Unlock(t.Context()), rlock.ErrNotHeld)
	require.ErrorIs(t, outer.Unlock(t.Context()), rlock.ErrNotHeld)
}

func detachedContextIsAStranger(t *testing.T, r *rig) {
	l := r.lock(t)
	type key struct{}
	h := Acquire(t, context.WithValue(t.Context(), key{}, "value"), l)
	detached := rlock.Detach(h.Context())
	assert.Equal(t, "value", detached.Value(key{}))
	_, err := l.TryLock(detached)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	_, err = l.Lock(detached, rlock.WithWait(20*time.Millisecond))
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	_, err = l.Lock(detached, rlock.WithWait(20*time.Millisecond), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "it would not nest")
	Unlock(t, h)
	Ended(t, detached, rlock.ErrUnlocked)
}

func withoutReentryIsErrHeld(t *testing.T, r *rig) {
	l := r.lock(t)
	h := Acquire(t, t.Context(), l, rlock.WithoutReentry())
	_, err := l.Lock(h.Context(), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrHeld)
	_, err = l.TryLock(h.Context(), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrHeld)
	inner := Acquire(t, h.Context(), l)
	_, err = l.Lock(inner.Context(), rlock.WithoutReentry())
	require.ErrorIs(t, err, rlock.ErrHeld)
	Live(t, h.Context())
	Unlock(t, inner)
	Unlock(t, h)
}

func endedHoldIsNoLineage(t *testing.T, r *rig) {
	l := r.lock(t)
	h := Acquire(t, t.Context(), l)
	ctx := context.WithoutCancel(h.Context())
	Unlock(t, h)
	next, err := l.TryLock(ctx, rlock.WithoutReentry())
	require.NoError(t, err, "nothing to nest in")
	_, err = l.TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	Unlock(t, next)
}

func anotherClientIsNoLineage(t *testing.T, r *rig) {
	a, b := r.lock(t), r.lock(t)
	h := Acquire(t, t.Context(), a)
	_, err := b.TryLock(h.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	Unlock(t, h)
}

func sharersExcludeOnAnotherLock(t *testing.T, r *rig) {
	c := r.Client(t)
	a, b := r.env.New(c, r.name+":a"), r.env.New(c, r.name+":b")
	shared := Acquire(t, t.Context(), a)
	first := Acquire(t, shared.Context(), b)
	_, err := b.TryLock(shared.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "B is no part of what the two share")
	waiting := Begin(func() (*rlock.Hold, error) { return b.Lock(shared.Context()) })
	Unlock(t, first)
	second := Next(t, waiting)
	again, err := a.TryLock(second.Context())
	require.NoError(t, err, "the lineage of A goes through holds of B")
	Unlock(t, again)
	Unlock(t, second)
	Unlock(t, shared)
}

func anotherLockIsAnOrdinaryChild(t *testing.T, r *rig) {
	c := r.Client(t)
	a, b := r.env.New(c, r.name+":a"), r.env.New(c, r.name+":b")
	outer := Acquire(t, t.Context(), a)
	child := Acquire(t, outer.Context(), b)
	Unlock(t, outer)
	Ended(t, child.Context(), rlock.ErrUnlocked)
	Refused(t, r.rivalOf(c, r.name+":b"))
	Unlock(t, child)
	Free(t, b)
}
