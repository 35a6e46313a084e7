package locktest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// exclusion is who has to wait, and for how long.
//
//nolint:gochecknoglobals // a constant table
var exclusion = []claim{
	{name: "KnowsItsName", test: knowsItsName},
	{name: "ExcludesOtherClients", test: excludesOtherClients, alone: true},
	{name: "ExcludesStrangersOfTheSameClient", test: excludesStrangers, alone: true},
	{name: "NeverLetsTwoIn", test: neverLetsTwoIn, alone: true},
	{name: "KeepsNamesApart", test: keepsNamesApart},
	{name: "WaiterOfAnotherClientGetsIt", test: waiterOfAnotherClientGetsIt},
	{name: "WaiterOfTheSameClientGetsIt", test: waiterOfTheSameClientGetsIt},
	{name: "WaiterGetsItWhenTheLeaseEnds", test: waiterGetsItWhenTheLeaseEnds},
	{name: "WaitsAreBounded", test: waitsAreBounded},
	{name: "DoneContextWinsOverAFreeLock", test: doneContextWins},
	{name: "CancelEndsTheWait", test: cancelEndsTheWait},
	{name: "EveryHoldHasAnOwnerOfItsOwn", test: everyHoldHasAnOwner},
	{name: "TakeOverPassesTheLock", test: takeOverPassesTheLock},
}

func knowsItsName(t *testing.T, r *rig) {
	assert.Equal(t, r.env.Name(r.name), r.lock(t).Name())
}

func excludesOtherClients(t *testing.T, r *rig) {
	a, b := r.lock(t), r.lock(t)
	h := Acquire(t, t.Context(), a)
	Refused(t, b)
	Unlock(t, h)
	h = Acquire(t, t.Context(), b)
	Refused(t, a)
	Unlock(t, h)
	Free(t, a)
}

func excludesStrangers(t *testing.T, r *rig) {
	c := r.Client(t)
	l, twin := r.env.New(c, r.name), r.env.New(c, r.name)
	h := Acquire(t, t.Context(), l)
	Refused(t, l)
	Refused(t, twin)
	Unlock(t, h)
	Free(t, twin)
}

func neverLetsTwoIn(t *testing.T, r *rig) {
	const clients, goroutines, rounds = 3, 4, 5
	var inside atomic.Int32
	sections := 0 // guarded by the lock under test
	var wg sync.WaitGroup
	for range clients {
		l := r.lock(t)
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					err := l.Do(t.Context(), func(context.Context) error {
						assert.EqualValues(t, 1, inside.Add(1), "holders at a time")
						sections++
						inside.Add(-1)
						return nil
					})
					assert.NoError(t, err)
				}
			})
		}
	}
	wg.Wait()
	assert.Equal(t, clients*goroutines*rounds, sections)
}

func keepsNamesApart(t *testing.T, r *rig) {
	c := r.Client(t)
	a, b := r.env.New(c, r.name+":a"), r.env.New(c, r.name+":b")
	ha, hb := Acquire(t, t.Context(), a), Acquire(t, t.Context(), b)
	Unlock(t, ha)
	Refused(t, r.rivalOf(c, r.name+":b"))
	Unlock(t, hb)
}

func waiterOfAnotherClientGetsIt(t *testing.T, r *rig) {
	a, b := r.rival(t), r.lock(t)
	h := Acquire(t, t.Context(), a)
	waiting := Begin(func() (*rlock.Hold, error) { return b.Lock(t.Context()) })
	Unlock(t, h)
	h = Next(t, waiting)
	Refused(t, a)
	Unlock(t, h)
}

func waiterOfTheSameClientGetsIt(t *testing.T, r *rig) {
	c := r.Client(t)
	l, other := r.env.New(c, r.name), r.rival(t)
	h := Acquire(t, t.Context(), r.rivalOf(c, r.name))
	waiting := Begin(func() (*rlock.Hold, error) { return l.TryLock(t.Context(), rlock.WithWait(limit)) })
	Unlock(t, h)
	next := Next(t, waiting)
	Live(t, next.Context())
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld, "each hold answers for itself")
	Refused(t, other)
	Unlock(t, next)
	Free(t, other)
}

func waiterGetsItWhenTheLeaseEnds(t *testing.T, r *rig) {
	a, b := r.rival(t), r.lock(t)
	h := Acquire(t, t.Context(), a, rlock.WithFixedLease(150*time.Millisecond))
	next := Acquire(t, t.Context(), b)
	Ended(t, h.Context(), rlock.ErrLost)
	Unlock(t, next)
}

func waitsAreBounded(t *testing.T, r *rig) {
	const wait = 50 * time.Millisecond
	c := r.Client(t)
	a, b := r.env.New(c, r.name), r.lock(t)
	h := Acquire(t, t.Context(), r.rivalOf(c, r.name))
	for _, l := range []rlock.Locker{a, b} {
		for verb, call := range map[string]func() error{
			"Lock":    func() error { _, err := l.Lock(t.Context(), rlock.WithWait(wait)); return err },
			"TryLock": func() error { _, err := l.TryLock(t.Context(), rlock.WithWait(wait)); return err },
			"Do": func() error {
				return l.Do(t.Context(), func(context.Context) error { return assert.AnError }, rlock.WithWait(wait))
			},
		} {
			start := time.Now()
			require.ErrorIs(t, call(), rlock.ErrNotAcquired, verb)
			require.GreaterOrEqual(t, time.Since(start), wait, verb)
		}
		_, err := l.Lock(t.Context(), rlock.WithWait(0))
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "a wait of 0 asks once")
	}
	Unlock(t, h)
	h, err := b.Lock(t.Context(), rlock.WithWait(time.Minute))
	require.NoError(t, err, "a free lock")
	Unlock(t, h)
}

func doneContextWins(t *testing.T, r *rig) {
	l := r.lock(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, tc := range []struct {
		ctx  context.Context //nolint:containedctx // the table's data
		want error
	}{{cancelled, context.Canceled}, {late, context.DeadlineExceeded}} {
		_, err := l.Lock(tc.ctx)
		require.ErrorIs(t, err, tc.want)
		_, err = l.TryLock(tc.ctx)
		require.ErrorIs(t, err, tc.want)
		err = l.Do(tc.ctx, func(context.Context) error { return assert.AnError })
		require.ErrorIs(t, err, tc.want)
		require.NotErrorIs(t, err, assert.AnError, "fn has not run")
	}
	Free(t, l)
}

func cancelEndsTheWait(t *testing.T, r *rig) {
	c := r.Client(t)
	a, b := r.env.New(c, r.name), r.lock(t)
	h := Acquire(t, t.Context(), r.rivalOf(c, r.name))
	for _, l := range []rlock.Locker{a, b} {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := Begin(func() (*rlock.Hold, error) { return l.Lock(ctx) })
		cancel()
		Failed(t, waiting, context.Canceled)

		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := l.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	Live(t, h.Context())
	Unlock(t, h)
	Unlock(t, Acquire(t, t.Context(), b)) // where waiters queue, the last one may just be leaving
}

func everyHoldHasAnOwner(t *testing.T, r *rig) {
	l := r.lock(t)
	seen := map[string]bool{}
	for range 3 {
		h := Acquire(t, t.Context(), l)
		assert.NotEmpty(t, h.Owner())
		assert.False(t, seen[h.Owner()], "owner id used before")
		seen[h.Owner()] = true
		Unlock(t, h)
	}
}

func takeOverPassesTheLock(t *testing.T, r *rig) {
	a, b, c := r.lock(t), r.rival(t), r.rival(t)
	before := Acquire(t, t.Context(), a)
	if !r.env.TakesOver {
		for verb, err := range Acquiring(t.Context(), a, rlock.WithTakeOver(before.Owner())) {
			require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
		}
		Unlock(t, before)
		return
	}
	_, err := b.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()+"0"))
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "another id")
	after, err := b.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
	require.NoError(t, err, "a restarted service takes its own lock back at once")
	assert.NotEqual(t, before.Owner(), after.Owner(), "no id is used twice")
	Refused(t, c)
	_, err = c.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "that id holds it no longer")
	require.ErrorIs(t, before.Unlock(t.Context()), rlock.ErrNotHeld)
	Refused(t, c)
	Live(t, after.Context())
	Unlock(t, after)
	after, err = c.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
	require.NoError(t, err, "an ordinary acquisition")
	Unlock(t, after)
}
