package rsemaphore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// permitClaims are what leased permits promise on every kind of server.
var permitClaims = map[string]func(*testing.T, *permitPlace){
	"AtMostNAtATime":             atMostNAtATime,
	"SetOnlyOnce":                setOnlyOnce,
	"WaitsUntilThereAreSome":     waitsUntilThereAreSome,
	"ReleaseWakesWaiters":        releaseWakesWaiters,
	"ReleaseWakesAsManyAsItCan":  releaseWakesAsManyAsItCan,
	"LeaseEndLetsAWaiterIn":      leaseEndLetsAWaiterIn,
	"ContextTellsOfTheEnd":       contextTellsOfTheEnd,
	"ReleaseTwiceIsErrNotHeld":   releaseTwiceIsErrNotHeld,
	"ExpiredPermitComesBackOnce": expiredPermitComesBackOnce,
	"LossEndsTheContext":         lossEndsThePermit,
	"ExtendSetsTheLease":         extendSetsThePermit,
	"ContextNestsNothing":        contextNestsNothing,
	"AllOrNone":                  allOrNone,
	"ManyArePermitsOfTheirOwn":   manyArePermitsOfTheirOwn,
	"LargeRequestIsNotOvertaken": largeRequestIsNotOvertaken,
	"ShrinkTakesNoPermitAway":    shrinkTakesNoPermitAway,
	"GrowWakesWaiters":           growWakesWaiters,
	"AddPermitsAddsAndTakes":     addPermitsAddsAndTakes,
	"WaitsAreBounded":            permitWaitsAreBounded,
	"CloseGivesThemBack":         closeGivesThemBack,
	"CloseAbandonsThem":          closeAbandonsThem,
}

func TestPermitsInMemory(t *testing.T) { eachPermitClaim(t, locktest.InMemory, permitClaims) }
func TestPermitsOnServer(t *testing.T) { eachPermitClaim(t, locktest.OnServer, permitClaims) }
func TestPermitsOnCluster(t *testing.T) {
	redistest.Long(t)
	eachPermitClaim(t, locktest.OnCluster, permitClaims)
}

func atMostNAtATime(t *testing.T, p *permitPlace) {
	const permits, clients, goroutines, rounds = 2, 3, 4, 5
	var inside, entries atomic.Int32
	givePermits(t, p.semaphore(t), permits)
	var wg sync.WaitGroup
	for range clients {
		s := p.semaphore(t)
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					permit, err := s.Acquire(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					assert.LessOrEqual(t, inside.Add(1), int32(permits), "holders at a time")
					entries.Add(1)
					inside.Add(-1)
					assert.NoError(t, permit.Release(t.Context()))
				}
			})
		}
	}
	wg.Wait()
	assert.EqualValues(t, clients*goroutines*rounds, entries.Load())
	require.NoError(t, permitsAre(t.Context(), p.Redis, p.name, permits, 0))
}

func setOnlyOnce(t *testing.T, p *permitPlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	assert.Equal(t, p.name, s.Name())
	requireAvailable(t, s, 0)
	givePermits(t, s, 3)
	set, err := other.TrySetPermits(t.Context(), 5)
	require.NoError(t, err)
	require.False(t, set)
	permit := takePermit(t, s)
	requireAvailable(t, other, 2)
	set, err = s.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	require.False(t, set, "also while permits are out")
	releasePermits(t, permit)
	requireAvailable(t, other, 3)
}

func waitsUntilThereAreSome(t *testing.T, p *permitPlace) {
	s := p.semaphore(t)
	requireNoPermit(t, s)
	waiting := beginPermits(t.Context(), s, 1)
	givePermits(t, p.semaphore(t), 1)
	releasePermits(t, nextPermits(t, waiting)...)
}

func releaseWakesWaiters(t *testing.T, p *permitPlace) {
	a := p.permits(t, 1)
	b := p.semaphore(t)
	for _, s := range []*rsemaphore.PermitSemaphore{a, b} {
		permit := takePermit(t, a)
		waiting := beginPermits(t.Context(), s, 1)
		requireNoPermit(t, p.semaphore(t))
		releasePermits(t, permit)
		releasePermits(t, nextPermits(t, waiting)...)
	}
}

func releaseWakesAsManyAsItCan(t *testing.T, p *permitPlace) {
	s := p.permits(t, 4)
	held := takePermits(t, s, 4)
	first, second := beginPermits(t.Context(), s, 2), beginPermits(t.Context(), s, 2)
	releasePermits(t, held[0])
	releasePermits(t, held[1])
	var got []*rsemaphore.Permit
	select { // two permits are enough for one of them
	case o := <-first:
		require.NoError(t, o.err)
		got, first = o.permits, nil
	case o := <-second:
		require.NoError(t, o.err)
		got, second = o.permits, nil
	case <-time.After(permitLimit):
		require.Fail(t, "nobody was woken")
	}
	requireAvailable(t, p.semaphore(t), 0)
	releasePermits(t, got...)
	if first == nil {
		first = second
	}
	releasePermits(t, nextPermits(t, first)...)
	releasePermits(t, held[2:]...)
	requireCapacity(t, p.Redis, p.name, 4)
}

func leaseEndLetsAWaiterIn(t *testing.T, p *permitPlace) {
	const lease, margin = 200 * time.Millisecond, 2 * time.Millisecond
	a, b := p.permits(t, 1), p.semaphore(t)
	start := time.Now()
	permit := takePermit(t, a, rsemaphore.WithFixedLease(lease))
	releasePermits(t, takePermit(t, b))
	assert.GreaterOrEqual(t, time.Since(start), lease-margin, "the holder was promised so much")
	locktest.Ended(t, permit.Context(), rsemaphore.ErrLost)
	require.ErrorIs(t, permit.Release(t.Context()), rsemaphore.ErrNotHeld)
	requireCapacity(t, p.Redis, p.name, 1)
}

func contextTellsOfTheEnd(t *testing.T, p *permitPlace) {
	s := p.permits(t, 3)
	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	permit := takePermit(t, s)
	assert.Greater(t, time.Until(permit.ExpiresAt()), 10*time.Second)
	locktest.Live(t, permit.Context())
	releasePermits(t, permit)
	locktest.Ended(t, permit.Context(), rsemaphore.ErrUnlocked)
	assert.Contains(t, context.Cause(permit.Context()).Error(), "rsemaphore: permit \""+p.name+"\": ended by its holder")

	child, err := s.Acquire(ctx)
	require.NoError(t, err)
	assert.Equal(t, "value", child.Context().Value(key{}))
	cancel(assert.AnError)
	locktest.Ended(t, child.Context(), assert.AnError)
	requireAvailable(t, s, 2)
	require.NoError(t, child.Release(ctx), "it works although its context is done")
	requireAvailable(t, s, 3)
}

func releaseTwiceIsErrNotHeld(t *testing.T, p *permitPlace) {
	s := p.permits(t, 2)
	permit, other := takePermit(t, s), takePermit(t, s)
	releasePermits(t, permit)
	require.ErrorIs(t, permit.Release(t.Context()), rsemaphore.ErrNotHeld)
	requireAvailable(t, s, 1)
	locktest.Live(t, other.Context())
	releasePermits(t, other)
	requireCapacity(t, p.Redis, p.name, 2)
}

func expiredPermitComesBackOnce(t *testing.T, p *permitPlace) {
	s := p.permits(t, 2)
	permits := takePermits(t, s, 2, rsemaphore.WithFixedLease(50*time.Millisecond))
	for _, permit := range permits {
		locktest.Ended(t, permit.Context(), rsemaphore.ErrLost)
		require.ErrorIs(t, permit.Release(t.Context()), rsemaphore.ErrNotHeld)
		require.ErrorIs(t, permit.Extend(t.Context(), time.Minute), rsemaphore.ErrLost)
	}
	releasePermits(t, takePermits(t, p.semaphore(t), 2)...)
	requireCapacity(t, p.Redis, p.name, 2)
	requireAvailable(t, s, 2)
}

func lossEndsThePermit(t *testing.T, p *permitPlace) {
	s := p.permits(t, 2, redlatch.WithWatchdogTimeout(3*time.Second))
	gone, stays := takePermit(t, s), takePermit(t, s)
	p.drop(t, gone)
	locktest.Ended(t, gone.Context(), rsemaphore.ErrLost)
	assert.Contains(t, context.Cause(gone.Context()).Error(), "rsemaphore: permit \""+p.name+"\": permit lost: ")
	require.ErrorIs(t, gone.Release(t.Context()), rsemaphore.ErrNotHeld)
	locktest.Live(t, stays.Context())
	releasePermits(t, stays)
	requireAvailable(t, s, 2)
}

func extendSetsThePermit(t *testing.T, p *permitPlace) {
	s, other := p.permits(t, 1), p.Client(t, redlatch.WithWatchdogTimeout(5*time.Minute)).GetPermitSemaphore(p.name+":2")
	givePermits(t, other, 1)
	permit := takePermit(t, s)
	require.NoError(t, permit.Extend(t.Context(), time.Hour))
	assert.Greater(t, time.Until(permit.ExpiresAt()), 50*time.Minute)
	brief := takePermit(t, other, rsemaphore.WithFixedLease(2*time.Second)) // less than the margin of the client's lease
	require.NoError(t, brief.Extend(t.Context(), time.Hour))
	locktest.Live(t, brief.Context())
	releasePermits(t, brief)
	if err := permit.Extend(t.Context(), 150*time.Millisecond); err != nil { // on a slow machine it ends before the answer
		require.ErrorIs(t, context.Cause(permit.Context()), rsemaphore.ErrLost, "%v", err)
	}
	assert.Less(t, time.Until(permit.ExpiresAt()), 150*time.Millisecond)
	releasePermits(t, takePermit(t, p.semaphore(t)))
	locktest.Ended(t, permit.Context(), rsemaphore.ErrLost)
	permit = takePermit(t, s)
	releasePermits(t, permit)
	require.ErrorIs(t, permit.Extend(t.Context(), time.Minute), rsemaphore.ErrNotHeld)
}

func contextNestsNothing(t *testing.T, p *permitPlace) {
	s := p.permits(t, 2)
	outer := takePermit(t, s)
	inner, err := s.Acquire(outer.Context())
	require.NoError(t, err)
	assert.NotEqual(t, outer.ID(), inner.ID())
	requireAvailable(t, s, 0)
	_, err = s.TryAcquire(inner.Context())
	require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
	releasePermits(t, outer)
	locktest.Ended(t, inner.Context(), rsemaphore.ErrUnlocked)
	requireAvailable(t, s, 1)
	releasePermits(t, inner)
	requireCapacity(t, p.Redis, p.name, 2)
}

func allOrNone(t *testing.T, p *permitPlace) {
	s := p.permits(t, 3)
	one := takePermit(t, s)
	_, err := s.AcquireN(t.Context(), 3, rsemaphore.WithWait(0))
	require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
	requireAvailable(t, s, 2)
	releasePermits(t, one)
	releasePermits(t, takePermits(t, s, 3)...)
	requireCapacity(t, p.Redis, p.name, 3)
}

func manyArePermitsOfTheirOwn(t *testing.T, p *permitPlace) {
	const n = 150 // more than one call renews
	s := p.permits(t, n+1, redlatch.WithWatchdogTimeout(1500*time.Millisecond))
	all := takePermits(t, s, n)
	ids := map[string]bool{}
	for _, permit := range all {
		assert.Regexp(t, "^[0-9a-f]{32}$", permit.ID())
		ids[permit.ID()] = true
	}
	assert.Len(t, ids, n)
	releasePermits(t, all[0])
	p.drop(t, all[1])
	locktest.Ended(t, all[1].Context(), rsemaphore.ErrLost)
	deadline := all[2].ExpiresAt()
	require.Eventually(t, func() bool { return all[2].ExpiresAt().After(deadline) }, permitLimit, 20*time.Millisecond, "it is renewed")
	for _, permit := range all[2:] {
		locktest.Live(t, permit.Context())
	}
	releasePermits(t, all[2:]...)
	requireCapacity(t, p.Redis, p.name, n+1)
}

func largeRequestIsNotOvertaken(t *testing.T, p *permitPlace) {
	s := p.permits(t, 3)
	held := takePermits(t, s, 3)
	large := beginPermits(t.Context(), s, 3)
	p.refused(t)
	small := beginPermits(t.Context(), s, 1)
	for _, permit := range held {
		releasePermits(t, permit)
		requireNoPermit(t, s)
	}
	got := nextPermits(t, large)
	select {
	case <-small:
		require.Fail(t, "the small request has overtaken the large one")
	default:
	}
	releasePermits(t, got...)
	releasePermits(t, nextPermits(t, small)...)
	requireCapacity(t, p.Redis, p.name, 3)
}

func shrinkTakesNoPermitAway(t *testing.T, p *permitPlace) {
	s, other := p.permits(t, 4), p.semaphore(t)
	held := takePermits(t, s, 4)
	require.NoError(t, other.SetPermits(t.Context(), 1))
	requireAvailable(t, other, -3)
	for i, permit := range held {
		locktest.Live(t, permit.Context())
		requireNoPermit(t, other)
		releasePermits(t, permit)
		requireAvailable(t, other, i-2)
		requireCapacity(t, p.Redis, p.name, 1)
	}
	releasePermits(t, takePermit(t, other))
}

func growWakesWaiters(t *testing.T, p *permitPlace) {
	s := p.permits(t, 1)
	held := takePermit(t, s)
	waiting := []<-chan permitOutcome{beginPermits(t.Context(), s, 1), beginPermits(t.Context(), p.semaphore(t), 1)}
	require.NoError(t, p.semaphore(t).SetPermits(t.Context(), 3))
	for _, w := range waiting {
		releasePermits(t, nextPermits(t, w)...)
	}
	releasePermits(t, held)
	require.NoError(t, s.SetPermits(t.Context(), 3), "as many as there are")
	requireAvailable(t, s, 3)
}

func addPermitsAddsAndTakes(t *testing.T, p *permitPlace) {
	s := p.semaphore(t)
	require.NoError(t, s.AddPermits(t.Context(), 2), "it creates the semaphore")
	held := takePermits(t, s, 2)
	waiting := beginPermits(t.Context(), p.semaphore(t), 1)
	require.NoError(t, s.AddPermits(t.Context(), 1))
	releasePermits(t, nextPermits(t, waiting)...)
	require.NoError(t, s.AddPermits(t.Context(), -2))
	requireAvailable(t, s, -1)
	releasePermits(t, held...)
	requireAvailable(t, s, 1)
	requireCapacity(t, p.Redis, p.name, 1)
}

func permitWaitsAreBounded(t *testing.T, p *permitPlace) {
	s := p.permits(t, 1)
	held := takePermit(t, s)
	_, err := s.TryAcquire(t.Context(), rsemaphore.WithWait(30*time.Millisecond))
	require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
	_, err = s.Acquire(t.Context(), rsemaphore.WithWait(30*time.Millisecond))
	require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = s.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	releasePermits(t, held)
	_, err = s.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a done context wins over a permit")
	redistest.Eventually(t, permitLimit, "the permit is there", func() error {
		n, err := s.Available(t.Context())
		if err == nil && n != 1 { // a call that gave up late gives it back in the background
			err = fmt.Errorf("%d available", n)
		}
		return err
	})
}

func closeGivesThemBack(t *testing.T, p *permitPlace) {
	c := p.Client(t, redlatch.WithCloseGrace(20*time.Millisecond))
	s := c.GetPermitSemaphore(p.name)
	givePermits(t, s, 3)
	held := takePermits(t, s, 3)
	waiting := beginPermits(t.Context(), s, 1)
	require.NoError(t, c.Close())
	require.ErrorIs(t, fetchPermits(t, waiting).err, redlatch.ErrClosed)
	for _, permit := range held {
		locktest.Ended(t, permit.Context(), redlatch.ErrClosed)
		require.ErrorIs(t, permit.Release(t.Context()), rsemaphore.ErrNotHeld)
	}
	requireAvailable(t, p.semaphore(t), 3)
	_, err := s.Acquire(t.Context())
	require.ErrorIs(t, err, redlatch.ErrClosed)
	require.ErrorIs(t, s.SetPermits(t.Context(), 1), redlatch.ErrClosed)
	_, err = s.Available(t.Context())
	require.ErrorIs(t, err, redlatch.ErrClosed)
}

func closeAbandonsThem(t *testing.T, p *permitPlace) {
	c := p.Client(t, redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose(), redlatch.WithWatchdogTimeout(500*time.Millisecond))
	s := c.GetPermitSemaphore(p.name)
	givePermits(t, s, 2)
	until := takePermits(t, s, 2)[1].ExpiresAt()
	require.NoError(t, c.Close())
	other := p.semaphore(t)
	if permit, err := other.TryAcquire(t.Context()); err == nil { // on a slow machine
		releasePermits(t, permit)
	} else {
		require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
	}
	releasePermits(t, takePermits(t, other, 2)...)
	require.Greater(t, time.Now(), until, "they are left to their lease")
	requireCapacity(t, p.Redis, p.name, 2)
}

// drop takes a permit away from its holder and gives it back, without a word to anybody.
func (p *permitPlace) drop(t *testing.T, permit *rsemaphore.Permit) {
	t.Helper()
	n, err := p.Redis.ZRem(t.Context(), "{"+p.name+"}:timeout", rawID(t, permit)).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "the permit was out")
	require.NoError(t, p.Redis.Incr(t.Context(), p.name).Err())
}

// refused waits until somebody of the semaphore's client stands in line.
func (p *permitPlace) refused(t *testing.T) {
	t.Helper()
	redistest.AwaitSubscribers(t, p.Redis, "redisson_sc:{"+p.name+"}", 1)
}
