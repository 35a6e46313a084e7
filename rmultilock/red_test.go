package rmultilock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// faults are ways for servers to be away.
var faults = map[string]func(p peers, on bool){
	"refused": peers.down,
	"silent": func(p peers, on bool) {
		for _, peer := range p {
			peer.Blackhole(on)
		}
	},
}

// F14
func TestMinorityDownDoesNoHarm(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 5)
				mine, others := s.peers(t), s.peers(t)
				fault(mine[:2], true)
				l := mine.red("a")
				for range 5 {
					h, err := l.TryLock(t.Context())
					require.NoError(t, err)
					assert.Equal(t, 3, s.have(t, "a"))
					locktest.Refused(t, others.red("a"))
					time.Sleep(2 * lease)
					locktest.Live(t, h.Context())
					locktest.Unlock(t, h)
				}
				fault(mine[:2], false)
				s.empty(t, 6*time.Second)
				locktest.Free(t, others.red("a"))
			})
		})
	}
}

// F14
func TestMajorityDownFailsInTimeAndLeavesNothing(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 5)
				mine := s.peers(t)
				fault(mine[:3], true)
				l := mine.red("a")
				within(t, time.Second, rlock.ErrNotAcquired, func() error { _, err := l.TryLock(t.Context()); return err })
				s[3:].empty(t, 100*time.Millisecond)
				within(t, 2*time.Second, rlock.ErrNotAcquired, func() error {
					_, err := l.Lock(t.Context(), rlock.WithWait(time.Second))
					return err
				})
				s[3:].empty(t, 100*time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				within(t, 1100*time.Millisecond, context.DeadlineExceeded, func() error { _, err := l.Lock(ctx); return err })
				s[3:].empty(t, 100*time.Millisecond)
				within(t, 3*lease, rlock.ErrNotAcquired, func() error { _, err := l.Lock(t.Context()); return err })
				s[3:].empty(t, 100*time.Millisecond)
				fault(mine[:3], false)
				s.empty(t, 2*lease)
			})
		})
	}
}

// A server that answers so is not away: the call does not go on for a lease.
func TestRefusalsByAMajorityEndTheCall(t *testing.T) {
	for _, reply := range []string{"NOPERM this user has no permissions", "OOM command not allowed when used memory > 'maxmemory'."} {
		for _, kind := range []string{"MultiLock", "RedLock"} {
			t.Run(reply+", "+kind, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := newServers(t, b, 3)
					p := s.peers(t)
					l := both(p[0].Client, p.locks("a")...)[kind]
					locktest.Free(t, l) // the servers run
					synctest.Wait()
					for _, one := range s[:2] {
						one.Mini.Server().SetPreHook(func(conn *server.Peer, cmd string, _ ...string) bool {
							if cmd == "EVALSHA" || cmd == "EVAL" {
								conn.WriteError(reply)
								return true
							}
							return false
						})
					}
					start := time.Now()
					_, err := l.Lock(t.Context())
					require.ErrorContains(t, err, reply)
					require.NotErrorIs(t, err, rlock.ErrNotAcquired)
					require.Equal(t, errors.Is(err, redlatch.ErrUnwritable), errors.Is(err, redlatch.ErrUnavailable))
					assert.Less(t, time.Since(start), time.Second)
					for _, one := range s[:2] {
						one.Mini.Server().SetPreHook(nil)
					}
					s.empty(t, 2*lease)
				})
			})
		}
	}
}

// It would wait for the busy lock in vain.
func TestRefusalThatStaysComesBeforeABusyLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 2)
		p, other := s.peers(t), s.peers(t)
		l := p[0].GetMultiLock(p.locks("a")...)
		locktest.Free(t, l) // the servers run
		synctest.Wait()
		busy := locktest.Acquire(t, t.Context(), other[0].GetLock("a"))
		s[1].Mini.Server().SetPreHook(func(conn *server.Peer, cmd string, _ ...string) bool {
			refused := cmd == "EVALSHA" || cmd == "EVAL"
			if refused {
				conn.WriteError("NOPERM this user has no permissions")
			}
			return refused
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*lease)
		defer cancel()
		_, err := l.Lock(ctx)
		require.ErrorContains(t, err, "NOPERM")
		require.NoError(t, ctx.Err())
		s[1].Mini.Server().SetPreHook(nil)
		locktest.Unlock(t, busy)
	})
}

// F14
func TestWaiterGetsItWhenMastersComeBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		mine := newServers(t, b, 5).peers(t)
		mine[:3].down(true)
		waiting := locktest.Begin(func() (*rlock.Hold, error) { return mine.red("a").Lock(t.Context()) })
		time.Sleep(lease / 2)
		mine[:1].down(false)
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

// F14
func TestEmptyMasterIsTakenInAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 5)
		mine, others := s.peers(t), s.peers(t)
		mine[0].Refuse(true)
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		synctest.Wait()
		require.Equal(t, 4, s.have(t, "a"))
		mine[0].Refuse(false)
		for i := range s {
			s[i].Mini.FlushAll() // it restarts, and has nothing
			mine[i].Cut()
			redistest.Eventually(t, lease*2/3, "the master is taken in", func() error {
				if n := s.have(t, "a"); n != 5 {
					return fmt.Errorf("%d of 5 have it", n)
				}
				return nil
			})
			locktest.Live(t, h.Context())
			locktest.Refused(t, others.red("a"))
		}
		locktest.Unlock(t, h)
		s.empty(t, 100*time.Millisecond)
	})
}

// F14
func TestContextEndsWhenTheMajorityIsGone(t *testing.T) {
	ends := map[string]struct {
		end    func(s servers, p peers)
		within time.Duration
	}{
		"forgotten": {func(s servers, _ peers) {
			for _, b := range s {
				b.Mini.FlushAll()
			}
		}, lease/3 + 100*time.Millisecond},
		"refused": {func(_ servers, p peers) { p.down(true) }, lease},
		"silent":  {func(_ servers, p peers) { faults["silent"](p, true) }, lease},
	}
	for name, tc := range ends {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 5)
				mine := s.peers(t)
				h := locktest.Acquire(t, t.Context(), mine.red("a"))
				synctest.Wait()
				tc.end(s[:2], mine[:2])
				time.Sleep(3 * lease)
				locktest.Live(t, h.Context())
				start := time.Now()
				tc.end(s[2:3], mine[2:3])
				tc.end(s[:2], mine[:2])
				locktest.Ended(t, h.Context(), rlock.ErrLost)
				assert.LessOrEqual(t, time.Since(start), tc.within)
				assert.Contains(t, context.Cause(h.Context()).Error(), `rmultilock: lock "a"`)
				s[3:].empty(t, 100*time.Millisecond)
				require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
				require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
				mine.down(false)
				faults["silent"](mine, false)
			})
		})
	}
}

// The first master is taken in again before the second one is known to have forgotten: no two are known to be gone at one time.
//
// F14
func TestMajorityThatWasGoneAndHasHealedIsALoss(t *testing.T) {
	for name, within := range map[string]func(t *testing.T, h *rlock.Hold, second *locktest.Peer){
		"plain": func(*testing.T, *rlock.Hold, *locktest.Peer) {},
		"held by a level of a long lease too": func(t *testing.T, h *rlock.Hold, second *locktest.Peer) {
			locktest.Acquire(t, h.Context(), second.GetLock("a"), rlock.WithFixedLease(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				mine, others := s.peers(t), s.peers(t)
				h := locktest.Acquire(t, t.Context(), mine.red("a"))
				time.Sleep(2 * lease)
				within(t, h, mine[1])
				mine[1].Blackhole(true)
				s[0].Mini.FlushAll()
				s[1].Mini.FlushAll()
				locktest.Free(t, others.red("a"))
				time.Sleep(lease / 2)
				require.Equal(t, 1, s[:1].have(t, "a"), "the first is taken in")
				locktest.Live(t, h.Context())
				mine[1].Blackhole(false)
				start := time.Now()
				locktest.Ended(t, h.Context(), rlock.ErrLost)
				assert.LessOrEqual(t, time.Since(start), lease/6)
				s.empty(t, 100*time.Millisecond)
			})
		})
	}
}

// F14
func TestMasterThatForgetsAfterItWasAskedIsNotMissed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		lost := make(chan struct{}, 10)
		hear := redlatch.WithObserver(redlatch.Observer{HoldEnd: func(context.Context, redlatch.HoldEndEvent) { lost <- struct{}{} }})
		mine, others := s.peers(t, hear), s.peers(t)
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		time.Sleep(2 * lease)
		s[0].Mini.FlushAll()
		<-lost
		time.Sleep(lease / 100) // the others are asked at once
		s[1].Mini.FlushAll()
		start := time.Now()
		locktest.Free(t, others.red("a"))
		locktest.Ended(t, h.Context(), rlock.ErrLost)
		assert.LessOrEqual(t, time.Since(start), lease/3)
		s.empty(t, 100*time.Millisecond)
	})
}

// F14
func TestMastersThatAreSilentInTurnEndNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t)
		h := locktest.Acquire(t, t.Context(), p.red("a"))
		time.Sleep(2 * lease)
		owner := s[0].Hash(t, "a")
		p[0].Blackhole(true)
		time.Sleep(lease * 8 / 10)
		p[1].Blackhole(true)
		time.Sleep(lease * 2 / 10)
		p[0].Blackhole(false) // its part has been lost, or is about to be
		time.Sleep(lease / 4)
		require.NotEqual(t, owner, s[0].Hash(t, "a"), "the first one was taken in again")
		require.Equal(t, 3, s.have(t, "a"), "the second one is not lost yet")
		time.Sleep(lease)
		require.Equal(t, 2, s.have(t, "a"), "it was silent before the first one was taken in")
		locktest.Live(t, h.Context())
		p[1].Blackhole(false)
		locktest.Unlock(t, h)
		s.empty(t, 2*lease)
	})
}

// F14
func TestNothingIsGrantedLate(t *testing.T) {
	const short = 20 * time.Millisecond // of which a round may use 17.8 ms
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t)
		red := func(by time.Duration) rlock.Locker {
			var slows []rlock.Locker
			for _, l := range p.locks("a") {
				slows = append(slows, slow{l, by})
			}
			return p[0].GetRedLock(slows...)
		}
		h, err := red(10*time.Millisecond).TryLock(t.Context(), rlock.WithFixedLease(short))
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Until(h.ExpiresAt()), 10*time.Millisecond)
		locktest.Unlock(t, h)
		_, err = red(18*time.Millisecond).TryLock(t.Context(), rlock.WithFixedLease(short))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		s.empty(t, 100*time.Millisecond)
	})
}

func TestRedLockDeadlineIsThatOfTheMajority(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t)
		h := locktest.Acquire(t, t.Context(), p.red("a"))
		first := h.ExpiresAt()
		assert.InDelta(t, lease.Seconds(), time.Until(first).Seconds(), 0.1)
		p[0].Blackhole(true)
		time.Sleep(lease / 2)
		second := h.ExpiresAt()
		assert.Greater(t, second, first, "two are renewed")
		p[1].Blackhole(true)
		time.Sleep(lease / 2)
		assert.Greater(t, h.ExpiresAt().Add(lease/24), second, "the second latest is the one that was renewed last")
		assert.Less(t, time.Until(h.ExpiresAt()), 2*lease/3)
		p[0].Blackhole(false)
		p[1].Blackhole(false)
		locktest.Unlock(t, h)
	})
}

func TestFixedLeaseAndMaxHoldOfARedLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t)
		for _, tc := range []struct {
			opt  rlock.Option
			want time.Duration
		}{
			{rlock.WithFixedLease(10 * time.Second), 10 * time.Second},
			{rlock.WithMaxHold(10 * time.Second), 10 * time.Second},
			{rlock.WithMaxHold(time.Second), time.Second},
		} {
			start := time.Now()
			h, err := p.red("a").TryLock(t.Context(), tc.opt)
			require.NoError(t, err)
			locktest.Ended(t, h.Context(), rlock.ErrLost)
			assert.InDelta(t, tc.want.Seconds(), time.Since(start).Seconds(), tc.want.Seconds()/20)
			s.empty(t, time.Second)
		}
	})
}

func TestCloseOfAMinorityEndsNoRedLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t, redlatch.WithCloseGrace(0))
		h := locktest.Acquire(t, t.Context(), p.red("a"))
		synctest.Wait() // all three have answered
		require.NoError(t, p[0].Close())
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		assert.Equal(t, 2, s.have(t, "a"))
		require.NoError(t, p[1].Close())
		locktest.Ended(t, h.Context(), redlatch.ErrClosed)
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld, "two of three were released by Close")
		s.empty(t, 100*time.Millisecond)
		_, err := p.red("a").Lock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
	})
}

// claimant is who says that it has the lock, as long as its context has not ended.
type claimants struct {
	mu   sync.Mutex // guards live
	live map[context.Context]string
}

// enter requires that nobody else has the lock.
func (c *claimants) enter(t *testing.T, ctx context.Context, who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for other, name := range c.live {
		if other.Err() == nil {
			assert.Fail(t, "two holders", "%s and %s", name, who)
		}
	}
	c.live[ctx] = who
}

func (c *claimants) exit(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, ctx)
}

// claim takes the lock again and again until the end, and counts its holds.
func (c *claimants) claim(t *testing.T, l rlock.Locker, who string, end time.Time, holds *atomic.Int32) {
	for time.Now().Before(end) {
		h, err := l.Lock(t.Context(), rlock.WithWait(time.Second))
		if err != nil {
			assert.ErrorIs(t, err, rlock.ErrNotAcquired)
			continue
		}
		holds.Add(1)
		c.enter(t, h.Context(), who)
		select {
		case <-h.Context().Done():
		case <-time.After(rand.N(time.Second)):
		}
		c.exit(h.Context())
		_ = h.Unlock(t.Context()) // it may have been lost
	}
}

// disturb breaks something of a client, which is whole again within four seconds.
func disturb(peer *locktest.Peer) {
	switch rand.N(4) {
	case 0:
		peer.LoseReplies(1 + rand.N(3))
	case 1:
		peer.Cut()
	case 2:
		peer.Blackhole(true)
		time.AfterFunc(rand.N(4*time.Second), func() { peer.Blackhole(false) })
	case 3:
		peer.Refuse(true)
		peer.Cut()
		time.AfterFunc(rand.N(4*time.Second), func() { peer.Refuse(false) })
	}
}

// F14
func TestNoOverlapUnderRandomFaults(t *testing.T) {
	redistest.Long(t)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 5)
		c := &claimants{live: map[context.Context]string{}}
		end := time.Now().Add(time.Duration(faulttest.Rounds(t, 40, 80)) * time.Second)
		var all []peers
		var wg sync.WaitGroup
		var holds atomic.Int32
		for i := range 3 {
			p := s.peers(t)
			all = append(all, p)
			for j := range 2 {
				wg.Go(func() { c.claim(t, p.red("a"), fmt.Sprint(i, " ", j), end, &holds) })
			}
		}
		for time.Now().Before(end) {
			disturb(all[rand.N(3)][rand.N(5)])
			time.Sleep(rand.N(time.Second))
		}
		wg.Wait()
		t.Logf("%d holds", holds.Load())
		assert.Greater(t, holds.Load(), int32(20))
		time.Sleep(5 * time.Second)
		s.empty(t, 4*lease)
	})
}
