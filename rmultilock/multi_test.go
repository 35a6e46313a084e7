package rmultilock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// opposite returns the same two locks as two multi-locks that take them in opposite orders, which names alone prevent.
func opposite(c, d *redlatch.Client, prefix string) (ab, ba rlock.Locker) {
	a, b := prefix+"a", prefix+"b"
	ab = c.GetMultiLock(c.GetLock(a), c.GetLock(b))
	ba = d.GetMultiLock(wrapped{d.GetLock(a), "z"}, wrapped{d.GetLock(b), "y"})
	return ab, ba
}

// contend has goroutines take the locks, each so often, and requires that no two are inside at a time.
func contend(t *testing.T, goroutines, rounds int, locks ...rlock.Locker) {
	t.Helper()
	var inside, done atomic.Int32
	var wg sync.WaitGroup
	for _, l := range locks {
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					assert.NoError(t, l.Do(t.Context(), func(context.Context) error {
						assert.EqualValues(t, 1, inside.Add(1), "holders at a time")
						time.Sleep(time.Millisecond) // the work
						inside.Add(-1)
						done.Add(1)
						return nil
					}))
				}
			})
		}
	}
	wg.Wait()
	assert.EqualValues(t, len(locks)*goroutines*rounds, done.Load())
}

// F14
func TestOppositeOrdersMakeProgress(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ab, ba := opposite(b.Peer(t).Client, b.Peer(t).Client, "")
		start := time.Now()
		contend(t, 4, 25, ab, ba)
		assert.Less(t, time.Since(start), 60*time.Second, "200 sections of 1 ms")
		assert.Empty(t, b.Keys(t))
	})
}

// F14
func TestOppositeOrdersMakeProgressOnServer(t *testing.T) {
	locktest.OnServer(t, func(t *testing.T, s *locktest.Server) {
		ab, ba := opposite(s.Client(t), s.Client(t), "opposite:")
		contend(t, 3, 10, ab, ba)
	})
}

// F14
func TestHoldsNothingWhileItWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		busy := locktest.Acquire(t, t.Context(), other.GetLock("b"))
		waiting := locktest.Begin(func() (*rlock.Hold, error) {
			return c.GetMultiLock(c.GetLock("a"), c.GetLock("b"), c.GetLock("c")).Lock(t.Context())
		})
		time.Sleep(time.Second) // it has found b busy by now
		for range 20 {
			locktest.Free(t, other.GetLock("a"))
			locktest.Free(t, other.GetLock("c"))
			time.Sleep(3 * time.Second)
		}
		select {
		case <-waiting:
			require.Fail(t, "b is taken")
		default:
		}
		locktest.Unlock(t, busy)
		h := locktest.Next(t, waiting)
		for _, name := range []string{"a", "b", "c"} {
			locktest.Refused(t, other.GetLock(name))
		}
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

// F14
func TestFailedMultiLockLeavesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"), c.GetLock("c"))
		for _, name := range []string{"a", "b", "c"} {
			busy := locktest.Acquire(t, t.Context(), other.GetLock(name))
			within(t, time.Second, rlock.ErrNotAcquired, func() error { _, err := l.TryLock(t.Context()); return err })
			assert.Equal(t, []string{name}, b.Keys(t))
			within(t, 2*time.Second, rlock.ErrNotAcquired, func() error {
				_, err := l.Lock(t.Context(), rlock.WithWait(time.Second))
				return err
			})
			assert.Equal(t, []string{name}, b.Keys(t))
			locktest.Unlock(t, busy)
		}
	})
}

func TestLossOfOneEndsTheWholeAndFreesTheRest(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 2)
		p := s.peers(t)
		h := locktest.Acquire(t, t.Context(), p[0].GetMultiLock(p[0].GetLock("a"), p[1].GetLock("b")))
		s[1].Delete(t, "b")
		start := time.Now()
		locktest.Ended(t, h.Context(), rlock.ErrLost)
		assert.LessOrEqual(t, time.Since(start), lease/3+100*time.Millisecond)
		cause := context.Cause(h.Context()).Error()
		assert.Contains(t, cause, `rmultilock: lock "a,b"`)
		assert.Contains(t, cause, `rlock: lock "b"`, "which one it was")
		s.empty(t, 100*time.Millisecond)
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		require.ErrorIs(t, h.Extend(t.Context(), time.Minute), rlock.ErrLost)
	})
}

func TestMultiLockDeadlineIsTheEarliest(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		short, long := b.Peer(t, redlatch.WithWatchdogTimeout(time.Second)), b.Peer(t, redlatch.WithWatchdogTimeout(time.Hour))
		h := locktest.Acquire(t, t.Context(), short.GetMultiLock(long.GetLock("a"), short.GetLock("b")))
		assert.Less(t, time.Until(h.ExpiresAt()), time.Second)
		time.Sleep(10 * time.Second)
		locktest.Live(t, h.Context())
		assert.Positive(t, time.Until(h.ExpiresAt()), "each is renewed as its client does")
		end := time.Now()
		locktest.Unlock(t, h)
		assert.WithinDuration(t, end, h.ExpiresAt(), 10*time.Millisecond, "when it ended")
	})
}

func TestCloseOfOneClientEndsAMultiLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 2)
		p := s.peers(t)
		h := locktest.Acquire(t, t.Context(), p[0].GetMultiLock(p[0].GetLock("a"), p[1].GetLock("b")))
		closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p[1].Close() })
		locktest.Ended(t, h.Context(), redlatch.ErrClosed)
		assert.Equal(t, 1, s.have(t, "b"), "until it is unlocked")
		locktest.Unlock(t, h)
		require.NoError(t, locktest.Fetch(t, closed).Err)
		s.empty(t, 100*time.Millisecond)
	})
}

// Close releases what fn holds beyond the grace. That is no loss, and Do says so, as it does for any other lock.
func TestDoOfAClosedClientIsErrClosed(t *testing.T) {
	for _, kind := range []string{"Lock", "MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, redlatch.WithCloseGrace(time.Second))
				l := rlock.Locker(p.GetLock("a"))
				if kind != "Lock" {
					l = both(p.Client, p.GetLock("a"), p.GetLock("b"))[kind]
				}
				began := make(chan struct{})
				done := locktest.Begin(func() (*rlock.Hold, error) {
					return nil, l.Do(t.Context(), func(ctx context.Context) error {
						close(began)
						<-ctx.Done()
						assert.ErrorIs(t, context.Cause(ctx), redlatch.ErrClosed)
						time.Sleep(5 * time.Second) // fn does not hurry
						return nil
					})
				})
				<-began
				require.NoError(t, p.Close())
				err := locktest.Fetch(t, done).Err
				require.ErrorIs(t, err, redlatch.ErrClosed)
				assert.NotErrorIs(t, err, rlock.ErrLost)
			})
		})
	}
}

// F23
func TestCloseOfOneClientEndsAnAttempt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 2)
		p := s.peers(t)
		slow := s[0].Peer(t, redlatch.WithObserver(redlatch.Observer{
			ScriptEnd: func(context.Context, redlatch.ScriptEndEvent) { time.Sleep(100 * time.Millisecond) },
		}))
		m := slow.GetMultiLock(slow.GetLock("a"), p[1].GetLock("b"))
		trying := locktest.Begin(func() (*rlock.Hold, error) { return m.TryLock(t.Context()) })
		synctest.Wait()                                 // the first lock is not answered yet
		go func() { assert.NoError(t, p[1].Close()) }() // ends within its grace
		err := locktest.Fetch(t, trying).Err
		require.ErrorIs(t, err, redlatch.ErrClosed)
		require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		s.empty(t, 10*time.Second)
	})
}

func TestReadWriteLocksTakePart(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		rw := c.GetReadWriteLock("config")
		l := c.GetMultiLock(c.GetLock("a"), rw)
		h := locktest.Acquire(t, t.Context(), l)
		_, err := other.GetReadWriteLock("config").TryRLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		inner := locktest.Acquire(t, h.Context(), l)
		read, err := rw.TryRLock(inner.Context())
		require.NoError(t, err, "a writer reads")
		locktest.Unlock(t, inner)
		locktest.Unlock(t, h)
		locktest.Live(t, read.Context())
		shared, err := other.GetReadWriteLock("config").TryRLock(t.Context())
		require.NoError(t, err, "downgraded")
		locktest.Unlock(t, shared)
		locktest.Unlock(t, read)

		readers := locktest.Acquire(t, t.Context(), c.GetMultiLock(c.GetLock("a"), rw.RLocker()))
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), other.GetReadWriteLock("config").RLocker()))
		locktest.Refused(t, other.GetReadWriteLock("config"))
		locktest.Unlock(t, readers)
	})
}

func TestPlainHoldOfOnePartNestsByItself(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, other := b.Peer(t), b.Peer(t)
		l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"))
		request, cancel := context.WithCancel(t.Context())
		defer cancel()
		h := locktest.Acquire(t, request, l)
		part := locktest.Acquire(t, h.Context(), c.GetLock("a"))
		locktest.Unlock(t, h)
		synctest.Wait()
		locktest.Live(t, part.Context())
		locktest.Refused(t, other.GetLock("a"))
		locktest.Free(t, other.GetLock("b"))
		cancel()
		locktest.Ended(t, part.Context(), context.Canceled)
		locktest.Unlock(t, part)

		outer := locktest.Acquire(t, t.Context(), c.GetLock("a"))
		whole := locktest.Acquire(t, outer.Context(), l)
		locktest.Refused(t, other.GetLock("b"))
		locktest.Unlock(t, whole)
		locktest.Refused(t, other.GetLock("a"))
		locktest.Unlock(t, outer)
		assert.Empty(t, b.Keys(t))
	})
}
