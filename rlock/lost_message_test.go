package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	"github.com/redlatch/redlatch/rlock"
)

const (
	prompt = 100 * time.Millisecond // how fast a waiter is that heard of a release
	slack  = 250 * time.Millisecond // for a busy machine
)

// spans collects how long things took. It is safe for concurrent use.
type spans struct {
	mu  sync.Mutex // guards all
	all []time.Duration
}

func (s *spans) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

// quantile returns the span that a share of all does not exceed.
func (s *spans) quantile(q float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.all)
	return s.all[min(int(q*float64(len(s.all))), len(s.all)-1)]
}

// prompt requires that hand-offs went by messages, and not by looking again after a while.
func (r *rig) prompt(t *testing.T, took *spans) {
	t.Helper()
	t.Logf("p99 %v, max %v; worst lag %v", took.quantile(0.99), took.quantile(1), r.lag.Worst())
	require.Less(t, took.quantile(0.99), prompt+r.lag.Late())
	require.Less(t, took.quantile(1), recheck+r.lag.Late(), "less than a re-check")
	require.Less(t, took.quantile(0.5), recheck/2, "whatever the machine does")
}

// wait begins to wait for a lock that somebody else has, and measures how long it takes from the release on.
func wait(ctx context.Context, l *rlock.Lock) <-chan locktest.Outcome {
	return locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx) })
}

// F4
func TestReleaseBetweenTryAndSubscriptionIsNotMissed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	holder, waiter := r.direct(t, redlatch.WithWatchdogTimeout(lease)), r.client(t, redlatch.WithWatchdogTimeout(lease))
	var holds sync.Map // the name of a lock -> its *rlock.Hold
	var released sync.Map
	r.proxy.OnCommand(func(cmd []string) {
		if !faulttest.Named("SUBSCRIBE")(cmd) {
			return
		}
		for _, channel := range cmd[1:] {
			name := strings.TrimSuffix(strings.TrimPrefix(channel, "redisson_lock__channel:{"), "}")
			if hold, ok := holds.LoadAndDelete(name); ok {
				assert.NoError(t, hold.(*rlock.Hold).Unlock(t.Context()))
				released.Store(name, time.Now())
			}
		}
	})
	var took spans
	n := faulttest.Rounds(t, 300, 10_000)
	share(t, 8, n, func(_, run int) error {
		name := fmt.Sprintf("gap-%d", run)
		hold, err := holder.GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		holds.Store(name, hold)
		next, err := waiter.GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		at, ok := released.Load(name)
		if !ok {
			return errors.New("acquired before the release")
		}
		took.add(time.Since(at.(time.Time)))
		return next.Unlock(t.Context())
	})
	r.proxy.OnCommand(nil)
	r.prompt(t, &took)
}

// F4
func TestWaitersGoOnWithoutMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.proxy.DropMessages(true)
	a := r.client(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithHandoffBudget(0))
	b := r.client(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithHandoffBudget(0))
	var took spans
	rounds := faulttest.Rounds(t, 2, 12)
	share(t, 20, 20, func(lane, _ int) error {
		name := fmt.Sprintf("deaf-%d", lane)
		hold, err := a.GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		clients := []*redlatch.Client{b, a}
		for round := range rounds {
			next := wait(t.Context(), clients[round%2].GetLock(name))
			elapse(time.Now().Add(rand.N(300 * time.Millisecond)))
			start := time.Now()
			if err := hold.Unlock(t.Context()); err != nil {
				return err
			}
			taken := <-next
			if taken.Err != nil {
				return taken.Err
			}
			took.add(time.Since(start))
			hold = taken.Hold
		}
		return hold.Unlock(t.Context())
	})
	t.Logf("p50 %v, max %v", took.quantile(0.5), took.quantile(1))
	require.Less(t, took.quantile(1), recheck+slack+r.lag.Late())
}

// crowd has waiters for so many locks that a stranger holds, and returns them once they wait for a message: each has
// subscribed, asked once more, and was refused.
func crowd(t *testing.T, r *rig, n int, opts ...redlatch.Option) (names []string, waiters []<-chan locktest.Outcome) {
	t.Helper()
	c := r.client(t, append(opts, redlatch.WithWatchdogTimeout(lease))...)
	asks := r.watchAcquiring(t)
	for i := range n {
		name := fmt.Sprintf("crowd-%d", i)
		r.foreign(t, name)
		names, waiters = append(names, name), append(waiters, wait(t.Context(), c.GetLock(name)))
	}
	r.listening(t, n)
	redistest.Eventually(t, patience, "the waiters have asked again", func() error { return asks.answered(t, names, 2) })
	r.proxy.OnCommand(nil)
	return names, waiters
}

// acquireAll waits for all waiters and returns how long that took from now on.
func acquireAll(t *testing.T, waiters []<-chan locktest.Outcome) *spans {
	t.Helper()
	start, took := time.Now(), &spans{}
	var wg sync.WaitGroup
	for _, w := range waiters {
		wg.Go(func() {
			taken := <-w
			took.add(time.Since(start))
			if assert.NoError(t, taken.Err) {
				assert.NoError(t, taken.Hold.Unlock(t.Context()))
			}
		})
	}
	wg.Wait()
	t.Logf("p50 %v, max %v", took.quantile(0.5), took.quantile(1))
	return took
}

// F4
func TestDeletedKeyIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range faulttest.Rounds(t, 1, 10) {
		names, waiters := crowd(t, r, 50)
		require.NoError(t, r.redis.Del(t.Context(), names...).Err())
		require.Less(t, acquireAll(t, waiters).quantile(1), recheck+slack+r.lag.Late())
	}
}

// F4
func TestExpiredKeyIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range faulttest.Rounds(t, 1, 10) {
		names, waiters := crowd(t, r, 50)
		const left = 200 * time.Millisecond
		for _, name := range names {
			require.NoError(t, r.redis.PExpire(t.Context(), name, left).Err())
		}
		require.Less(t, acquireAll(t, waiters).quantile(1), left+recheck+slack+r.lag.Late())
	}
}

// F4
func TestLostSubscriptionLosesNoRelease(t *testing.T) {
	lose := map[string]func(t *testing.T, r *rig){
		"CLIENT KILL": func(t *testing.T, r *rig) {
			require.NoError(t, r.redis.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		},
		"cut": func(_ *testing.T, r *rig) { r.proxy.Cut() },
	}
	for how, lose := range lose {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for range faulttest.Rounds(t, 1, 10) {
				var back atomic.Int64
				observer := redlatch.Observer{Reconnected: func() { back.Add(1) }}
				names, waiters := crowd(t, r, 50, redlatch.WithObserver(observer))
				require.Zero(t, back.Load(), "the first connection is no reconnection")
				again := make(chan struct{}) // closed when all is released
				r.proxy.OnCommand(func(cmd []string) {
					if faulttest.Named("SUBSCRIBE")(cmd) {
						<-again
					}
				})
				lose(t, r)
				require.NoError(t, r.redis.Del(t.Context(), names...).Err())
				close(again)
				took := acquireAll(t, waiters)
				r.proxy.OnCommand(nil)
				require.Less(t, took.quantile(1), 3*prompt+r.lag.Late(), "who is subscribed again asks again")
				redistest.Eventually(t, patience, "the observer is told", func() error {
					if back.Load() == 0 {
						return errNotYet
					}
					return nil
				})
			}
		})
	}
}

// F4
func TestWaiterThatGivesUpTakesNoWakeUpAlong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	holder, c := r.direct(t, redlatch.WithWatchdogTimeout(lease)), r.client(t, redlatch.WithWatchdogTimeout(lease))
	var took spans
	share(t, 8, faulttest.Rounds(t, 200, 10_000), func(_, run int) error {
		name := fmt.Sprintf("hint-%d", run)
		hold, err := holder.GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := wait(ctx, c.GetLock(name))
		second := wait(t.Context(), c.GetLock(name))
		elapse(time.Now().Add(rand.N(5 * time.Millisecond)))
		start := time.Now()
		timer := time.AfterFunc(rand.N(time.Millisecond), cancel) // about when the message comes
		defer timer.Stop()
		if err := hold.Unlock(t.Context()); err != nil {
			return err
		}
		if o := <-first; o.Err == nil {
			if err := o.Hold.Unlock(t.Context()); err != nil {
				return err
			}
		}
		o := <-second
		if o.Err != nil {
			return o.Err
		}
		took.add(time.Since(start))
		return o.Hold.Unlock(t.Context())
	})
	r.prompt(t, &took)
}
