package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// Holds that were taken together are renewed together, a hundred in a call. Each must behave as if it were alone.

// herd is holds of one client that are all renewed together.
type herd struct {
	bubble *locktest.Bubble
	peer   *locktest.Peer
	holds  []named
}

// named is a hold, and the name of its lock.
type named struct {
	*rlock.Hold
	name string
}

// take acquires the lock of a place.
func (c *herd) take(t *testing.T, place int) named {
	t.Helper()
	name := fmt.Sprintf("herd-%03d", place)
	return named{locktest.Acquire(t, t.Context(), c.peer.GetLock(name)), name}
}

func newHerd(t *testing.T, b *locktest.Bubble, size int) *herd {
	t.Helper()
	c := &herd{bubble: b, peer: b.Peer(t)}
	for i := range size {
		c.holds = append(c.holds, c.take(t, i))
	}
	time.Sleep(2 * lease) // from here on nothing but the common renewal happens to them
	return c
}

// ttls returns what is left of each hold's key.
func (c *herd) ttls(t *testing.T) []time.Duration {
	t.Helper()
	synctest.Wait() // for a renewal of this very moment
	var left []time.Duration
	for _, h := range c.holds {
		left = append(left, c.bubble.Mini.TTL(h.name))
	}
	return left
}

// kept requires that all holds are live, but those at the given places, and renewed in time.
func (c *herd) kept(t *testing.T, but ...int) {
	t.Helper()
	for i, left := range c.ttls(t) {
		if slices.Contains(but, i) {
			continue
		}
		h := c.holds[i]
		require.NoError(t, h.Context().Err(), h.name)
		require.GreaterOrEqual(t, left, lease*2/3-10*tick, h.name)
		until := time.Until(h.ExpiresAt())
		require.LessOrEqual(t, until, left, "never promises more than Redis keeps")
		require.GreaterOrEqual(t, until, left-margin(lease)-moment, "and not much less")
	}
}

func (c *herd) unlockAll(t *testing.T, but ...int) {
	t.Helper()
	for i, h := range c.holds {
		if !slices.Contains(but, i) {
			require.NoError(t, h.Unlock(t.Context()), h.name)
		}
	}
}

func TestHerdIsRenewedByFewCallsAndInTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := newHerd(t, b, 420)
		scripts := c.peer.Scripts()
		const rounds = 12
		for start := time.Now(); time.Since(start) < rounds*third; time.Sleep(777 * time.Millisecond) {
			c.kept(t)
		}
		calls := c.peer.Scripts() - scripts
		assert.GreaterOrEqual(t, calls, 5*rounds)
		assert.LessOrEqual(t, calls, 5*(rounds+1)+rounds, "five calls a round, and a little for rounds that come early")
		c.unlockAll(t)
		scripts = c.peer.Scripts()
		time.Sleep(2 * lease)
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, scripts, c.peer.Scripts(), "nothing is renewed after the releases")
	})
}

func TestWhatHappensToOneOfAHerdDoesNotHappenToOthers(t *testing.T) {
	const one = 17
	events := map[string]func(t *testing.T, c *herd, h named){
		"unlocked": func(t *testing.T, c *herd, h named) {
			locktest.Unlock(t, h.Hold)
			assert.Zero(t, c.bubble.TTL(t, h.name), "free at once")
			assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		},
		"extended": func(t *testing.T, c *herd, h named) {
			require.NoError(t, h.Extend(t.Context(), 7*time.Second))
			assert.Equal(t, 7*time.Second, c.bubble.TTL(t, h.name))
			endsAt(t, h.Context(), time.Now().Add(7*time.Second-margin(7*time.Second)), rlock.ErrLost)
		},
		"extended for long": func(t *testing.T, c *herd, h named) {
			require.NoError(t, h.Extend(t.Context(), 3*lease))
			time.Sleep(2 * lease)
			assert.Equal(t, lease, c.bubble.TTL(t, h.name), "it is not renewed any more")
			locktest.Unlock(t, h.Hold)
		},
		"nested": func(t *testing.T, c *herd, h named) {
			inner := locktest.Acquire(t, h.Context(), c.peer.GetLock(h.name))
			time.Sleep(lease)
			locktest.Unlock(t, inner)
			for range 10 {
				time.Sleep(third)
				locktest.Live(t, h.Context())
				assert.GreaterOrEqual(t, c.bubble.TTL(t, h.name), lease*2/3-10*tick)
			}
			locktest.Unlock(t, h.Hold)
			assert.Zero(t, c.bubble.TTL(t, h.name))
		},
		"deleted": func(t *testing.T, c *herd, h named) {
			c.bubble.Delete(t, h.name)
			start := time.Now()
			<-h.Context().Done()
			assert.LessOrEqual(t, time.Since(start), third, "told at the next renewal")
			assert.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost)
			assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		},
		"replaced": func(t *testing.T, c *herd, h named) {
			require.NoError(t, c.bubble.Redis.Set(t.Context(), h.name, "data", 0).Err())
			start := time.Now()
			<-h.Context().Done()
			assert.LessOrEqual(t, time.Since(start), third)
			assert.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost)
			c.bubble.Delete(t, h.name)
		},
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				c := newHerd(t, b, 200)
				event(t, c, c.holds[one])
				for range 30 {
					time.Sleep(lease / 10)
					c.kept(t, one)
				}
				c.unlockAll(t, one)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestSilenceEndsAHerdBeforeItsLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := newHerd(t, b, 230)
		c.peer.Blackhole(true)
		left := c.ttls(t)
		start := time.Now()
		for i, h := range c.holds {
			at := start.Add(left[i] - margin(lease))
			assert.WithinDuration(t, at, h.ExpiresAt(), moment)
		}
		for len(left) > 0 {
			for i, h := range c.holds {
				rest := time.Until(start.Add(left[i] - margin(lease)))
				if rest < -moment {
					require.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost, "%s: it ends before the lease", h.name)
				} else if rest > moment {
					require.NoError(t, h.Context().Err(), "%s: it holds as long as Redis keeps it", h.name)
				}
			}
			if time.Since(start) > lease {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		c.peer.Blackhole(false)
		for _, h := range c.holds {
			assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		}
	})
}

func TestHerdOutlivesRenewalsThatFail(t *testing.T) {
	mishaps := map[string]func(p *locktest.Peer){
		"lost replies":     func(p *locktest.Peer) { p.LoseReplies(6); time.Sleep(lease / 2) },
		"hanging replies":  func(p *locktest.Peer) { p.HangReplies(2); time.Sleep(lease / 2) },
		"refused":          func(p *locktest.Peer) { p.Refuse(true); p.Cut(); time.Sleep(lease / 2); p.Refuse(false) },
		"silence":          func(p *locktest.Peer) { p.Blackhole(true); time.Sleep(lease / 2); p.Blackhole(false) },
		"late on the way":  func(p *locktest.Peer) { p.Withhold(2); time.Sleep(lease / 2) },
		"a moment of each": func(p *locktest.Peer) { p.Cut(); p.LoseReplies(1); p.HangReplies(1); time.Sleep(lease / 2) },
	}
	for name, mishap := range mishaps {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				c := newHerd(t, b, 210)
				for range 4 {
					mishap(c.peer)
					time.Sleep(third / 2)
					for _, h := range c.holds {
						require.NoError(t, h.Context().Err(), h.name)
					}
					require.Greater(t, slices.Min(c.ttls(t)), lease/2, "renewed once Redis is back")
				}
				time.Sleep(2 * lease)
				c.kept(t)
				c.peer.Deliver(t)
				c.unlockAll(t)
				time.Sleep(lease)
				assert.Empty(t, b.Keys(t), "what arrived late keeps nothing")
			})
		})
	}
}

// F5
func TestReleaseOfOneOfAHerdWaitsForTheCommonRenewal(t *testing.T) {
	for _, one := range []int{0, 42, 99} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			c := newHerd(t, b, 100)
			h := c.holds[one]
			scripts := c.peer.Scripts()
			c.peer.HangReplies(1)
			for c.peer.Scripts() == scripts {
				time.Sleep(tick)
			}
			start := time.Now()
			done := make(chan error, 1) // room for the result
			go func() { done <- h.Unlock(t.Context()) }()
			synctest.Wait()
			assert.Error(t, h.Context().Err(), "the hold has ended for its user")
			assert.Equal(t, scripts+1, c.peer.Scripts(), "but the release waits for the renewal")
			require.NoError(t, <-done)
			assert.LessOrEqual(t, time.Since(start), 3*time.Second)
			assert.Zero(t, b.TTL(t, h.name))
			time.Sleep(2 * lease)
			c.kept(t, one)
			c.unlockAll(t, one)
			assert.Empty(t, b.Keys(t))
		})
	}
}

func TestCloseReleasesAHerd(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := newHerd(t, b, 200)
		require.NoError(t, c.peer.Close())
		for _, h := range c.holds {
			require.Error(t, h.Context().Err())
		}
		assert.Empty(t, b.Keys(t))
	})
}

// TestHoldsOfAHerdAgreeWithRedis does at random what may happen, and compares what holders are told with what Redis has.
func TestHoldsOfAHerdAgreeWithRedis(t *testing.T) {
	seeds := []uint64{11647184228897520698} // a brief extension without an answer
	for range faulttest.Rounds(t, 3, 20) {
		seeds = append(seeds, rand.Uint64())
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { agree(t, b, seed) })
		})
	}
}

func agree(t *testing.T, b *locktest.Bubble, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it makes a test repeatable
	c := newHerd(t, b, 100+random.IntN(250))
	fixed := make([]bool, len(c.holds))        // extended: not renewed any more
	gone := make([]time.Time, len(c.holds))    // when it was taken away
	inner := make([]*rlock.Hold, len(c.holds)) // a nested level
	for range 60 {
		i := random.IntN(len(c.holds))
		h := c.holds[i]
		live := h.Context().Err() == nil && gone[i].IsZero()
		switch act := random.IntN(14); {
		case act < 3 && live:
			until := h.ExpiresAt()
			if inner[i] != nil {
				_ = inner[i].Unlock(t.Context()) // if it is not answered, the release of the lock tells
			}
			if err := h.Unlock(t.Context()); err != nil { // its own reply was the one that was lost
				over := !time.Now().Before(until) && errors.Is(err, rlock.ErrNotHeld) // while the inner level was released
				require.True(t, over || errors.Is(err, redlatch.ErrUnknown), "%v", err)
			} else {
				require.Zero(t, b.TTL(t, h.name))
			}
			gone[i], inner[i] = time.Now(), nil
		case act < 5 && !live && b.TTL(t, h.name) == 0:
			c.holds[i] = c.take(t, i)
			fixed[i], gone[i], inner[i] = false, time.Time{}, nil
		case act == 5 && live:
			d := time.Second + time.Duration(random.Int64N(int64(lease)))
			err := h.Extend(t.Context(), d)
			brief := d < 5*time.Second || fixed[i] // it may end while the answer is missing
			if missed := errors.Is(err, rlock.ErrLost) || errors.Is(err, redlatch.ErrUnknown); brief && missed {
				require.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost)
			} else {
				require.NoError(t, err)
			}
			fixed[i] = true
		case act == 6 && live && inner[i] == nil && !fixed[i]: // what was extended may end while the answer is missing
			inner[i] = locktest.Acquire(t, h.Context(), c.peer.GetLock(h.name))
		case act == 7 && live && inner[i] != nil:
			if err := inner[i].Unlock(t.Context()); err != nil {
				require.ErrorIs(t, err, redlatch.ErrUnknown)
			}
			inner[i] = nil
		case act == 8 && live:
			b.Delete(t, h.name)
			gone[i] = time.Now()
		case act == 9:
			c.peer.LoseReplies(1 + random.IntN(2))
		case act == 10:
			c.peer.HangReplies(1)
		case act == 11:
			c.peer.Cut()
		}
		time.Sleep(time.Duration(random.Int64N(int64(third / 2))))
		synctest.Wait()
		for i, h := range c.holds {
			left, until := c.bubble.Mini.TTL(h.name), time.Until(h.ExpiresAt())
			told := h.Context().Err() == nil
			switch {
			case !gone[i].IsZero():
				require.False(t, told && time.Since(gone[i]) > lease, "%s: not told", h.name)
			case fixed[i]:
				require.False(t, told && until > left, "%s: promised %v, left %v", h.name, until, left)
			default:
				require.True(t, told, "%s: ended by %v", h.name, context.Cause(h.Context()))
				require.LessOrEqual(t, until, left, h.name)
				require.Greater(t, left, lease/3, h.name)
			}
		}
	}
}
