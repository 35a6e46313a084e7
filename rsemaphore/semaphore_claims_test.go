package rsemaphore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// semaphoreClaims hold on every kind of server.
var semaphoreClaims = map[string]func(*testing.T, *semaphorePlace){
	"at most n at a time":                       atMostN,
	"permits are set once":                      setOnce,
	"a wait ends with a release elsewhere":      releaseElsewhereWakes,
	"a wait ends with added permits":            addedPermitsWake,
	"a wait ends with the first permits":        firstPermitsWake,
	"a release of k serves k waiters":           releaseServesAsManyAsItCan,
	"a large request is not overtaken":          largeIsNotOvertaken,
	"clients take turns":                        clientsTakeTurns,
	"a wait that runs out is false":             waitRunsOut,
	"nobody tries past those who wait":          noTryPastTheLine,
	"drained permits are gone":                  drained,
	"taken away permits leave less than none":   takenAway,
	"a release above the most changes nothing":  overRelease,
	"a release makes a semaphore":               releaseMakesIt,
	"other data is ErrWrongType, and stays":     otherDataStays,
	"Close ends every wait and leaves no trace": closeEndsWaits,
	"cancelled waits leave no trace":            cancelledWaits,
}

func TestSemaphoreInMemory(t *testing.T) { eachSemaphoreClaim(t, locktest.InMemory, semaphoreClaims) }

func TestSemaphoreOnServer(t *testing.T) { eachSemaphoreClaim(t, locktest.OnServer, semaphoreClaims) }

func TestSemaphoreOnCluster(t *testing.T) {
	redistest.Long(t)
	eachSemaphoreClaim(t, locktest.OnCluster, semaphoreClaims)
}

// F13
func TestOneReleaseOfTwoServesOneWaiterForTwo(t *testing.T) {
	claim := map[string]func(*testing.T, *semaphorePlace){"": oneReleaseServesOne}
	for what, where := range map[string]locktest.Place{
		"in memory": locktest.InMemory, "on a server": locktest.OnServer, "on a cluster": locktest.OnCluster,
	} {
		t.Run(what, func(t *testing.T) { eachSemaphoreClaim(t, where, claim) })
	}
}

func atMostN(t *testing.T, p *semaphorePlace) {
	first := p.semaphore(t)
	give(t, first, 5)
	var inside, most atomic.Int64
	var workers sync.WaitGroup
	for _, s := range []*rsemaphore.Semaphore{first, p.semaphore(t)} {
		for i := range 12 {
			workers.Go(func() {
				n := 1 + i%3
				for range 10 {
					if !assert.NoError(t, s.Acquire(t.Context(), n)) {
						return
					}
					now := inside.Add(int64(n))
					for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
					}
					inside.Add(-int64(n))
					assert.NoError(t, s.Release(t.Context(), n))
				}
			})
		}
	}
	workers.Wait()
	assert.LessOrEqual(t, most.Load(), int64(5))
	requireThere(t, first, 5)
}

func setOnce(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 3)
	for _, again := range []*rsemaphore.Semaphore{s, other} {
		set, err := again.TrySetPermits(t.Context(), 7)
		require.NoError(t, err)
		require.False(t, set)
	}
	take(t, s, 3)
	set, err := other.TrySetPermits(t.Context(), 7)
	require.NoError(t, err)
	require.False(t, set, "it exists with none")
	requireThere(t, s, 0)
}

func releaseElsewhereWakes(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 2)
	take(t, s, 2)
	waiting := beginTake(t.Context(), other, 1)
	p.subscribed(t, 1)
	waits(t, waiting)
	lag := faulttest.MeasureLag(t, "")
	start := time.Now()
	release(t, s, 1)
	require.NoError(t, ended(t, waiting))
	assert.Less(t, time.Since(start), 700*time.Millisecond+lag.Late(), "sooner than by a re-check")
	requireThere(t, s, 0)
}

func addedPermitsWake(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 1)
	waiting := beginTake(t.Context(), other, 3)
	local := beginTake(t.Context(), s, 4)
	p.subscribed(t, 2)
	require.NoError(t, s.AddPermits(t.Context(), 6))
	require.NoError(t, ended(t, waiting))
	require.NoError(t, ended(t, local))
	requireThere(t, s, 0)
}

func firstPermitsWake(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	requireThere(t, s, 0)
	require.False(t, tried(t, s, 1))
	waiting := beginTake(t.Context(), other, 1)
	p.subscribed(t, 1)
	give(t, s, 2)
	require.NoError(t, ended(t, waiting))
	requireThere(t, s, 1)
}

func oneReleaseServesOne(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 4)
	take(t, s, 4)
	for _, waiter := range []*rsemaphore.Semaphore{s, other} {
		first, second := beginTake(t.Context(), waiter, 2), beginTake(t.Context(), waiter, 2)
		p.subscribed(t, 1)
		release(t, s, 2)
		var later <-chan error
		select {
		case err := <-first:
			require.NoError(t, err)
			later = second
		case err := <-second:
			require.NoError(t, err)
			later = first
		case <-time.After(semaphoreLimit):
			require.Fail(t, "nobody was served")
		}
		requireThere(t, s, 0)
		waits(t, later)
		release(t, s, 2)
		require.NoError(t, ended(t, later))
		requireThere(t, s, 0)
	}
}

func releaseServesAsManyAsItCan(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 5)
	take(t, s, 5)
	var waiting []<-chan error
	for i := range 6 {
		waiting = append(waiting, beginTake(t.Context(), []*rsemaphore.Semaphore{s, other}[i%2], 1))
	}
	p.subscribed(t, 2)
	release(t, s, 5)
	served := make(chan error) // closed by nobody: it ends with the test
	for _, w := range waiting {
		go func() {
			select {
			case served <- <-w:
			case <-t.Context().Done():
			}
		}()
	}
	for range 5 {
		require.NoError(t, ended(t, served))
	}
	requireThere(t, s, 0)
	release(t, s, 1)
	require.NoError(t, ended(t, served))
}

func largeIsNotOvertaken(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t)
	give(t, s, 3)
	take(t, s, 3)
	large := beginTake(t.Context(), s, 3)
	p.subscribed(t, 1)
	small := beginTake(t.Context(), s, 1)
	for i := range 2 {
		release(t, s, 1)
		requireThere(t, s, i+1)
		require.False(t, tried(t, s, 1), "others of this client wait")
		waits(t, small)
	}
	release(t, s, 1)
	require.NoError(t, ended(t, large))
	waits(t, small)
	release(t, s, 3)
	require.NoError(t, ended(t, small))
	requireThere(t, s, 2)
}

func clientsTakeTurns(t *testing.T, p *semaphorePlace) {
	clients := []*rsemaphore.Semaphore{p.semaphore(t), p.semaphore(t)}
	give(t, clients[0], 2)
	var served [2]atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), semaphoreLimit)
	defer cancel()
	var workers sync.WaitGroup
	for i, s := range clients {
		for range 6 {
			workers.Go(func() {
				for served[0].Load() < 50 || served[1].Load() < 50 {
					if !assert.NoError(t, s.Acquire(ctx, 1), "client %d was served %d times", i, served[i].Load()) {
						return
					}
					served[i].Add(1)
					if p.Fake {
						time.Sleep(100 * time.Microsecond) // so that time passes
					}
					assert.NoError(t, s.Release(t.Context(), 1))
				}
			})
		}
	}
	workers.Wait()
	requireThere(t, clients[0], 2)
}

func waitRunsOut(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 1)
	take(t, s, 1)
	for _, wait := range []time.Duration{0, time.Nanosecond, 30 * time.Millisecond} {
		for _, waiter := range []*rsemaphore.Semaphore{s, other} {
			start := time.Now()
			ok, err := waiter.TryAcquire(t.Context(), 1, rsemaphore.WithWait(wait))
			require.False(t, ok)
			if p.Fake || wait == 0 || !errors.Is(err, redlatch.ErrUnavailable) { // a real server may not have answered yet
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, time.Since(start), wait)
		}
	}
	waiting := make(chan bool, 1) // room for the result
	go func() {
		ok, err := other.TryAcquire(t.Context(), 1, rsemaphore.WithWait(semaphoreLimit))
		waiting <- ok && err == nil
	}()
	p.subscribed(t, 1)
	release(t, s, 1)
	require.True(t, <-waiting)
	requireThere(t, s, 0)
}

func noTryPastTheLine(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 2)
	waiting := beginTake(t.Context(), s, 3)
	p.subscribed(t, 1)
	eventually(t, func(context.Context) bool { return !tried(t, s, 1) || s.Release(t.Context(), 1) != nil })
	require.True(t, tried(t, other, 1), "another client has no waiters")
	release(t, other, 1)
	release(t, s, 1)
	require.NoError(t, ended(t, waiting))
	requireThere(t, s, 0)
}

func drained(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t)
	n, err := s.Drain(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	give(t, s, 7)
	take(t, s, 2)
	for _, want := range []int{5, 0} {
		n, err := s.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, n)
		requireThere(t, s, 0)
	}
	release(t, s, 2)
	requireThere(t, s, 2)
}

func takenAway(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t)
	give(t, s, 2)
	take(t, s, 2)
	require.NoError(t, s.AddPermits(t.Context(), -3))
	requireThere(t, s, -3)
	n, err := s.Drain(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	requireThere(t, s, -3)
	release(t, s, 2)
	require.False(t, tried(t, s, 1))
	require.NoError(t, s.AddPermits(t.Context(), 2))
	require.True(t, tried(t, s, 1))
	requireThere(t, s, 0)
}

func overRelease(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t, rsemaphore.WithMax(3))
	give(t, s, 3)
	require.ErrorIs(t, s.Release(t.Context(), 1), rsemaphore.ErrOverRelease)
	take(t, s, 2)
	require.ErrorIs(t, s.Release(t.Context(), 3), rsemaphore.ErrOverRelease)
	requireThere(t, s, 1)
	release(t, s, 2)
	requireThere(t, s, 3)
	require.ErrorIs(t, s.Acquire(t.Context(), 4), redlatch.ErrInvalid)
	release(t, p.semaphore(t), 2) // one without a limit
	requireThere(t, s, 5)
}

func releaseMakesIt(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t)
	release(t, s, 2)
	set, err := s.TrySetPermits(t.Context(), 5)
	require.NoError(t, err)
	require.False(t, set)
	requireThere(t, s, 2)
}

func otherDataStays(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t)
	fill := map[string]func(ctx context.Context) error{
		"a hash": func(ctx context.Context) error { return p.Redis.HSet(ctx, p.name, "a", "b").Err() },
		"a word": func(ctx context.Context) error { return p.Redis.Set(ctx, p.name, "word", 0).Err() },
	}
	for what, fill := range fill {
		require.NoError(t, fill(t.Context()))
		before, err := p.Redis.Dump(t.Context(), p.name).Result()
		if p.Fake { // it knows no DUMP
			before, err = "", nil
		}
		require.NoError(t, err)
		for verb, call := range semaphoreCalls {
			require.ErrorIs(t, call(t.Context(), s), redlatch.ErrWrongType, "%s: %s", what, verb)
		}
		if !p.Fake {
			after, err := p.Redis.Dump(t.Context(), p.name).Result()
			require.NoError(t, err)
			require.Equal(t, before, after, what)
		}
		n, err := p.Redis.Del(t.Context(), p.name).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, what)
	}
}

func closeEndsWaits(t *testing.T, p *semaphorePlace) {
	s := p.semaphore(t)
	give(t, s, 1)
	take(t, s, 1)
	c := p.Client(t)
	waiter := c.GetSemaphore(p.name)
	var waiting []<-chan error
	for range 20 {
		waiting = append(waiting, beginTake(context.WithoutCancel(t.Context()), waiter, 1))
	}
	p.subscribed(t, 1)
	lag := faulttest.MeasureLag(t, "")
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), time.Second+lag.Late(), "nothing is held")
	for _, w := range waiting {
		require.ErrorIs(t, ended(t, w), redlatch.ErrClosed)
	}
	for verb, call := range semaphoreCalls {
		require.ErrorIs(t, call(t.Context(), waiter), redlatch.ErrClosed, verb)
	}
	release(t, s, 1)
	requireThere(t, s, 1)
}

func cancelledWaits(t *testing.T, p *semaphorePlace) {
	s, other := p.semaphore(t), p.semaphore(t)
	give(t, s, 2)
	take(t, s, 2)
	ctx, cancel := context.WithCancel(t.Context())
	large, small := beginTake(ctx, other, 2), beginTake(t.Context(), other, 1)
	p.subscribed(t, 1)
	release(t, s, 1)
	cancel()
	if err := ended(t, large); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, ended(t, small), "it is the first now")
	eventually(t, func(ctx context.Context) bool {
		n, err := s.Available(ctx)
		return err == nil && n == 0
	})
}
