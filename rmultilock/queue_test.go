package rmultilock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// longestPause is the longest time until a waiter that hears of nothing asks again.
const longestPause = 201 * time.Millisecond

// line has so many calls of one client wait for a RedLock, one after the other.
func (p peers) line(ctx context.Context, n int, opts ...rlock.Option) (all []<-chan locktest.Outcome) {
	return inLine(n, func() (*rlock.Hold, error) { return p.red("a").Lock(ctx, opts...) })
}

// inLine begins a call so many times, one after the other.
func inLine(n int, call func() (*rlock.Hold, error)) (all []<-chan locktest.Outcome) {
	for range n {
		all = append(all, locktest.Begin(call))
		synctest.Wait()
	}
	return all
}

// F21
func TestCommandsForABusyRedLockDoNotGrowWithItsWaiters(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t)
		for _, server := range s {
			server.Foreign(t, "a", time.Hour)
		}
		asked := func(waiters int) int {
			ctx, cancel := context.WithCancel(t.Context())
			all := p.line(ctx, waiters)
			before := p.scripts()
			time.Sleep(10 * time.Second)
			n := p.scripts() - before
			cancel()
			for _, waiting := range all {
				locktest.Failed(t, waiting, context.Canceled)
			}
			return n
		}
		few := asked(1)
		assert.Less(t, asked(50), 2*few)
	})
}

// F21
func TestNobodyIsAskedForARedLockThatThisClientHolds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t)
		s[2].Foreign(t, "a", time.Hour)
		h := locktest.Acquire(t, t.Context(), p.red("a"), rlock.WithFixedLease(time.Minute)) // of which nothing is renewed
		waiting := p.line(t.Context(), 1)[0]
		before := p.scripts()
		time.Sleep(10 * time.Second)
		assert.Equal(t, before, p.scripts())
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

// F21
func TestWaitersOfARedLockFollowOneAnotherInOrderAndAtOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 3).peers(t)
		h := locktest.Acquire(t, t.Context(), p.red("a"))
		late := 0
		for _, waiting := range p.line(t.Context(), 40) {
			time.Sleep(lease / 3)
			locktest.Unlock(t, h)
			start := time.Now()
			h = locktest.Next(t, waiting)
			assert.LessOrEqual(t, time.Since(start), longestPause)
			if time.Since(start) > 0 {
				late++
			}
		}
		locktest.Unlock(t, h)
		assert.Less(t, late, 20, "one in eight leaves the lock to others")
	})
}

func TestWaiterOfARedLockThatEndsPassesItsTurnOn(t *testing.T) {
	for name, ends := range map[string]struct {
		opts []rlock.Option
		want error
	}{
		"cancelled": {nil, context.Canceled},
		"limit":     {[]rlock.Option{rlock.WithWait(time.Second)}, rlock.ErrNotAcquired},
	} {
		for position := range 3 {
			t.Run(name, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := newServers(t, b, 3).peers(t)
					h := locktest.Acquire(t, t.Context(), p.red("a"))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					before := p.line(t.Context(), position)
					ending := p.line(ctx, 1, ends.opts...)[0]
					after := p.line(t.Context(), 2)
					time.Sleep(time.Second)
					if ends.opts == nil {
						cancel()
					}
					time.Sleep(10 * time.Millisecond)
					select {
					case o := <-ending:
						require.ErrorIs(t, o.Err, ends.want)
						require.NotErrorIs(t, o.Err, redlatch.ErrUnavailable)
					default:
						assert.Fail(t, "it ends at once")
					}
					for _, waiting := range append(before, after...) {
						locktest.Unlock(t, h)
						start := time.Now()
						h = locktest.Next(t, waiting)
						assert.LessOrEqual(t, time.Since(start), longestPause)
					}
					locktest.Unlock(t, h)
				})
			})
		}
	}
}

func TestCloseEndsAllWaitersOfARedLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t, redlatch.WithCloseGrace(0))
		locktest.Acquire(t, t.Context(), s.peers(t).red("a"))
		all := p.line(t.Context(), 20)
		for _, peer := range p {
			require.NoError(t, peer.Close())
		}
		start := time.Now()
		for _, waiting := range all {
			locktest.Failed(t, waiting, redlatch.ErrClosed)
		}
		assert.LessOrEqual(t, time.Since(start), longestPause)
	})
}

func TestCallThatNestsInARedLockDoesNotStandInItsQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 3).peers(t)
		first := locktest.Acquire(t, t.Context(), p[0].GetLock("a"))
		second := locktest.Acquire(t, first.Context(), p[1].GetLock("a"))
		waiting := p.line(t.Context(), 1)[0]
		time.Sleep(time.Second)
		h := locktest.Acquire(t, second.Context(), p.red("a"), rlock.WithWait(time.Second))
		locktest.Unlock(t, locktest.Acquire(t, h.Context(), p.red("a"), rlock.WithWait(time.Second)))
		for _, one := range []*rlock.Hold{h, second, first} {
			locktest.Unlock(t, one)
		}
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

// F27
func TestAllWaitersOfARedLockLearnThatMastersAreDown(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := newServers(t, b, 3).peers(t)
				h := locktest.Acquire(t, t.Context(), p.red("a"))
				all := p.line(t.Context(), 50)
				short := p.line(t.Context(), 10, rlock.WithWait(2*lease))
				time.Sleep(lease / 2)
				fault(p, true)
				locktest.Ended(t, h.Context(), rlock.ErrLost)
				start := time.Now()
				for _, waiting := range append(all, short...) {
					locktest.Failed(t, waiting, redlatch.ErrUnavailable)
				}
				assert.LessOrEqual(t, time.Since(start), 2*lease)
				fault(p, false)
			})
		})
	}
}

func TestLeaseThatIsTooShortIsNotInTheWayForLong(t *testing.T) {
	const short = 20 * time.Millisecond // of which a round may use 17.8 ms
	for _, kind := range []string{"MultiLock", "RedLock"} {
		for _, late := range []time.Duration{short * 9 / 10, short * 5 / 4} { // before the lock is lost, and after it
			for _, busy := range []time.Duration{lease / 300, lease / 3} { // one is free at the start, or busy
				t.Run(fmt.Sprint(kind, late, busy), func(t *testing.T) {
					locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
						s := newServers(t, b, 3)
						p := s.peers(t)
						var slows []rlock.Locker
						for _, l := range p.locks("a") {
							slows = append(slows, slow{l, late})
						}
						s[0].Foreign(t, "a", busy)
						time.Sleep(lease / 300)
						start := time.Now()
						_, err := both(p[0].Client, slows...)[kind].Lock(t.Context(), rlock.WithFixedLease(short))
						require.ErrorIs(t, err, redlatch.ErrUnavailable)
						assert.InDelta(t, lease.Seconds(), time.Since(start).Seconds(), lease.Seconds()/2)
					})
				})
			}
		}
	}
}

// F27
func TestCallThatJoinsInAnOutageTriesForALeaseOfItsOwn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 3).peers(t)
		p.down(true)
		first := p.line(t.Context(), 1)[0]
		time.Sleep(lease * 9 / 10)
		second := p.line(t.Context(), 1)[0]
		start := time.Now()
		locktest.Failed(t, first, redlatch.ErrUnavailable)
		locktest.Failed(t, second, redlatch.ErrUnavailable)
		assert.InDelta(t, lease.Seconds(), time.Since(start).Seconds(), lease.Seconds()/10)
		p.down(false)
	})
}

// gated is a context whose Err blocks while its gate is closed.
type gated struct {
	context.Context
	gate atomic.Pointer[chan struct{}]
}

func (g *gated) Err() error {
	if gate := g.gate.Load(); gate != nil {
		<-*gate
	}
	return g.Context.Err()
}

func TestContextThatBlocksInAQueueHoldsUpNoOtherCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 3).peers(t)
		h := locktest.Acquire(t, t.Context(), p.red("a"))
		asking := p.line(t.Context(), 1)[0]
		inner, cancel := context.WithCancel(t.Context())
		ctx, gate := &gated{Context: inner}, make(chan struct{})
		waiting := p.line(ctx, 1)[0]
		ctx.gate.Store(&gate)
		cancel()
		synctest.Wait()
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), p.red("b")))
		close(gate)
		locktest.Failed(t, waiting, context.Canceled)
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, asking))
	})
}

func TestClientWithManyWaitersLeavesARedLockToOthers(t *testing.T) {
	redistest.Long(t)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		const work = 10 * time.Millisecond
		end := time.Now().Add(20 * time.Second)
		var holds [2]int // guarded by the lock
		var users sync.WaitGroup
		for i := range holds {
			p := s.peers(t)
			for range 4 {
				users.Go(func() {
					for time.Now().Before(end) {
						h, err := p.red("a").Lock(t.Context())
						if !assert.NoError(t, err) {
							return
						}
						holds[i]++
						time.Sleep(work)
						assert.NoError(t, h.Unlock(t.Context()))
					}
				})
			}
		}
		users.Wait()
		t.Logf("%d and %d holds", holds[0], holds[1])
		assert.Greater(t, min(holds[0], holds[1]), 20)
		assert.Greater(t, holds[0]+holds[1], 1200, "of at most 2000")
	})
}
