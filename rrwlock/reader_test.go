package rrwlock_test

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
	"github.com/redlatch/redlatch/rrwlock"
)

// F12
func TestCrashedReaderStopsCounting(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		short := redlatch.WithWatchdogTimeout(3 * time.Second)
		dying, healthy := b.Peer(t, short), b.Peer(t, short)
		lost := locktest.Acquire(t, t.Context(), dying.GetReadWriteLock("n").RLocker())
		kept := locktest.Acquire(t, t.Context(), healthy.GetReadWriteLock("n").RLocker())
		dying.Blackhole(true)
		start := time.Now()
		locktest.Ended(t, lost.Context(), rlock.ErrLost)
		assert.LessOrEqual(t, time.Since(start), 3*time.Second, "before its lease ends")
		time.Sleep(time.Until(start.Add(3*time.Second + moment)))
		assert.Zero(t, b.TTL(t, "{n}:"+lost.Owner()+":rwlock_timeout:1"), "its own lease has ended")
		time.Sleep(10 * time.Second)
		locktest.Live(t, kept.Context())
		assert.Equal(t, map[string]string{"mode": "read", kept.Owner(): "1", lost.Owner(): "1"}, b.Hash(t, "n"))

		w := b.Peer(t)
		locktest.Refused(t, w.GetReadWriteLock("n"))
		locktest.Unlock(t, kept)
		h, err := w.GetReadWriteLock("n").TryLock(t.Context())
		require.NoError(t, err, "nobody alive reads")
		locktest.Unlock(t, h)
		dying.Blackhole(false)
	})
}

// F12
func TestWriterWaitsOnlyForTheCrashedReadersLease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		dying := b.Peer(t, redlatch.WithWatchdogTimeout(3*time.Second))
		locktest.Acquire(t, t.Context(), dying.GetReadWriteLock("n").RLocker())
		long := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker())
		waiting := begin(t, t.Context(), b.Peer(t).GetReadWriteLock("n"))
		dying.Blackhole(true)
		locktest.Unlock(t, long)
		got := locktest.Fetch(t, waiting)
		require.NoError(t, got.Err)
		assert.LessOrEqual(t, got.After, 3*time.Second+recheck, "not the 30 s that the hash was to live")
		locktest.Unlock(t, got.Hold)
		dying.Blackhole(false)
	})
}

// F12
func TestShorterLeaseNeverShortensAnothers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.Peer(t).GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
		long := locktest.Acquire(t, t.Context(), l.RLocker(), rlock.WithFixedLease(20*time.Second))
		short := locktest.Acquire(t, t.Context(), other.RLocker(), rlock.WithFixedLease(time.Second))
		assert.Equal(t, 20*time.Second, b.TTL(t, "n"))
		require.NoError(t, short.Extend(t.Context(), 2*time.Second))
		nested := locktest.Acquire(t, short.Context(), other.RLocker(), rlock.WithFixedLease(100*time.Millisecond))
		locktest.Unlock(t, nested)
		assert.Equal(t, 20*time.Second, b.TTL(t, "n"))
		time.Sleep(3 * time.Second)
		locktest.Ended(t, short.Context(), rlock.ErrLost)
		locktest.Live(t, long.Context())
		w := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n"))
		locktest.Ended(t, long.Context(), rlock.ErrLost)
		locktest.Unlock(t, w)
	})
}

// F12
func TestWriterReleaseWakesAllReaders(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		w := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n"))
		var waiting []<-chan locktest.Outcome
		for range 10 {
			l := b.Peer(t).GetReadWriteLock("n").RLocker()
			for range 3 {
				waiting = append(waiting, begin(t, t.Context(), l))
			}
		}
		time.Sleep(300 * time.Millisecond)
		locktest.Unlock(t, w)
		start := time.Now()
		var holds []*rlock.Hold
		for _, done := range waiting {
			holds = append(holds, locktest.Next(t, done))
		}
		assert.Less(t, time.Since(start), moment, "all at once, by the message")
		for _, h := range holds {
			locktest.Live(t, h.Context())
			locktest.Unlock(t, h)
		}
		assert.Empty(t, b.Keys(t))
	})
}

// stream has readers of two clients follow one another without a gap until the result is called.
func stream(t *testing.T, b *locktest.Bubble, hold time.Duration, opts ...rrwlock.Option) (stop func()) {
	t.Helper()
	var users sync.WaitGroup
	var over atomic.Bool
	for range 2 {
		l := b.Peer(t).GetReadWriteLock("n", opts...)
		for i := range 5 {
			users.Go(func() {
				time.Sleep(time.Duration(i) * hold / 5)
				for !over.Load() {
					err := l.RDo(t.Context(), func(context.Context) error { time.Sleep(hold); return nil })
					assert.NoError(t, err)
				}
			})
		}
	}
	time.Sleep(2 * hold)
	return func() { over.Store(true); users.Wait() }
}

// F12
func TestReadersDoNotStarveAWriter(t *testing.T) {
	for _, where := range []string{"another client", "a client that reads"} {
		t.Run(where, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const hold = 200 * time.Millisecond
				stop := stream(t, b, hold)
				p := b.Peer(t)
				if where != "another client" {
					reading := locktest.Acquire(t, t.Context(), p.GetReadWriteLock("n").RLocker())
					time.AfterFunc(hold/2, func() { assert.NoError(t, reading.Unlock(t.Context())) })
				}
				for range 5 {
					start := time.Now()
					h := locktest.Acquire(t, t.Context(), p.GetReadWriteLock("n"))
					assert.Less(t, time.Since(start), 2*hold)
					locktest.Unlock(t, h)
				}
				stop()
				time.Sleep(5 * time.Second) // readers may have noted that somebody listens
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

// F12
func TestWithoutWriterPreferenceReadersPass(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		stop := stream(t, b, 200*time.Millisecond, rrwlock.WithoutWriterPreference())
		waiting := begin(t, t.Context(), b.Peer(t).GetReadWriteLock("n"))
		time.Sleep(20 * time.Second)
		select {
		case o := <-waiting:
			require.Fail(t, "the writer got in", "%v", o)
		default:
		}
		stop()
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

// F12
func TestWriterThatGaveUpHoldsNobodyBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		r := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker())
		ctx, cancel := context.WithCancel(t.Context())
		writing := begin(t, ctx, b.Peer(t).GetReadWriteLock("n"))
		reading := begin(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker())
		time.Sleep(10 * time.Second)
		select {
		case <-reading:
			require.Fail(t, "a new reader got in although a writer waits")
		default:
		}
		again := locktest.Acquire(t, r.Context(), b.Peer(t).GetReadWriteLock("m").RLocker())
		locktest.Unlock(t, again)
		cancel()
		start := time.Now()
		locktest.Failed(t, writing, context.Canceled)
		locktest.Unlock(t, locktest.Next(t, reading))
		assert.Less(t, time.Since(start), moment, "it was told")
		locktest.Unlock(t, r)
		assert.Empty(t, b.Keys(t))
	})
}

// F12
func TestWriterThatDiedWhileItWaitedHoldsReadersBackBriefly(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		r := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker())
		dying := b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		writing := begin(t, ctx, dying.GetReadWriteLock("n"))
		dying.Blackhole(true)
		start := time.Now()
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker()))
		assert.InDelta(t, 3*time.Second, time.Since(start), float64(moment))
		cancel()
		locktest.Failed(t, writing, context.Canceled)
		dying.Blackhole(false)
		locktest.Unlock(t, r)
	})
}

// F12
func TestReadersReenterWhileAWriterWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		r := locktest.Acquire(t, t.Context(), l.RLocker())
		waiting := begin(t, t.Context(), b.Peer(t).GetReadWriteLock("n"))
		locktest.Refused(t, l.RLocker())
		inner, err := l.TryRLock(r.Context())
		require.NoError(t, err)
		n, err := l.HoldCount(inner.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		locktest.Unlock(t, r)
		synctest.Wait()
		locktest.Live(t, inner.Context())
		locktest.Unlock(t, inner)
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}
