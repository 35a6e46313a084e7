package rrwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

// sides are the two modes of a lock.
func sides(l *rrwlock.Lock) map[string]rlock.Locker {
	return map[string]rlock.Locker{"writer": l, "reader": l.RLocker()}
}

// F1
func TestHoldersHearOfTheLossFirst(t *testing.T) {
	for _, mode := range []string{"writer", "reader"} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			p := b.Peer(t, redlatch.WithWatchdogTimeout(3*time.Second))
			h := locktest.Acquire(t, t.Context(), sides(p.GetReadWriteLock("n"))[mode])
			time.Sleep(5 * time.Second)
			p.Blackhole(true)
			waiting := begin(t, t.Context(), b.Peer(t).GetReadWriteLock("n"))
			locktest.Ended(t, h.Context(), rlock.ErrLost)
			select {
			case <-waiting:
				require.Fail(t, "the next writer got in before")
			default:
			}
			locktest.Unlock(t, locktest.Next(t, waiting))
			p.Blackhole(false)
		})
	}
}

// TestCancelledCallsLeaveNothing cancels calls all over their way to a server that is far away.
//
// F3
func TestCancelledCallsLeaveNothing(t *testing.T) {
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	rdb := server.Client(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	far, near := clientAt(t, proxy.Addr()), clientAt(t, server.Addr())
	proxy.Delay(10 * time.Millisecond)
	t.Cleanup(func() { proxy.Delay(0) })
	lag := faulttest.MeasureLag(t, server.Addr())
	const lanes = 10
	n := faulttest.Rounds(t, 40, 300)
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for run := lane; run < n; run += lanes {
				name := fmt.Sprint("cancelled-", run)
				l := far.GetReadWriteLock(name)
				busy, err := near.GetReadWriteLock(name).RLock(t.Context())
				assert.NoError(t, err)
				for _, side := range sides(l) {
					ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond*time.Duration(run)/time.Duration(n))
					hold, err := side.Lock(ctx)
					if err == nil {
						err = hold.Unlock(ctx)
						if !errors.Is(err, redlatch.ErrUnknown) || lag.Late() < 50*time.Millisecond { // it has 100 ms
							assert.NoError(t, err)
						}
					} else {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					}
					cancel()
				}
				assert.NoError(t, busy.Unlock(t.Context()))
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, 20*time.Second, "nothing is left", func() error {
		left, err := rdb.Keys(t.Context(), "*cancelled-*").Result()
		if len(left) > 0 {
			return fmt.Errorf("%d keys, such as %s", len(left), left[0])
		}
		return err
	})
}

// F4
func TestWaitersGoOnWithoutMessages(t *testing.T) {
	for _, mode := range []string{"writer", "reader"} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			require.NoError(t, b.Redis.HSet(t.Context(), "n", "mode", "write", foreign+":write", 1).Err())
			var users sync.WaitGroup
			for range 3 {
				side := sides(b.Peer(t).GetReadWriteLock("n"))[mode]
				for range 2 {
					users.Go(func() {
						assert.NoError(t, side.Do(t.Context(), func(ctx context.Context) error { return ctx.Err() }))
					})
				}
			}
			time.Sleep(10 * time.Second)
			b.Delete(t, "n")
			start := time.Now()
			users.Wait()
			assert.Less(t, time.Since(start), recheck)
			assert.Empty(t, b.Hash(t, "n"))
		})
	}
}

// F5
func TestNothingIsRenewedAfterTheRelease(t *testing.T) {
	for _, mode := range []string{"writer", "reader", "both"} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			p := b.Peer(t)
			l := p.GetReadWriteLock("n")
			side := sides(l)[mode]
			if mode == "both" {
				side = l
			}
			first := locktest.Acquire(t, t.Context(), side)
			holds := []*rlock.Hold{first}
			if mode == "both" {
				holds = append(holds, locktest.Acquire(t, first.Context(), l.RLocker()))
			}
			time.Sleep(time.Minute)
			for _, h := range holds {
				locktest.Unlock(t, h)
			}
			sent := p.Scripts()
			time.Sleep(5 * time.Minute)
			assert.Equal(t, sent, p.Scripts())
			assert.Empty(t, b.Keys(t))
		})
	}
}

// F6
func TestHoldsAreRenewedForAsLongAsTheyLast(t *testing.T) {
	redistest.Long(t)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var holds []*rlock.Hold
		for i := range 50 {
			l := p.GetReadWriteLock(fmt.Sprint("n", i%5))
			holds = append(holds, locktest.Acquire(t, t.Context(), l.RLocker()))
			m := p.GetReadWriteLock(fmt.Sprint("m", i))
			w := locktest.Acquire(t, t.Context(), m)
			holds = append(holds, w, locktest.Acquire(t, w.Context(), m.RLocker()))
		}
		for range 60 {
			time.Sleep(time.Minute)
			require.NoError(t, b.Redis.ScriptFlush(t.Context()).Err())
		}
		for _, key := range b.Keys(t) {
			assert.Greater(t, b.TTL(t, key), 15*time.Second, key)
		}
		for _, h := range holds {
			locktest.Live(t, h.Context())
			require.NoError(t, h.Unlock(t.Context()))
		}
		assert.Empty(t, b.Keys(t))
	})
}

func TestNamesOfOtherKindsAreErrWrongType(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, q := b.Peer(t), b.Peer(t)
		plain := locktest.Acquire(t, t.Context(), p.GetLock("n"))
		for _, side := range sides(q.GetReadWriteLock("n")) {
			for verb, err := range locktest.Acquiring(t.Context(), side) {
				require.ErrorIs(t, err, redlatch.ErrWrongType, verb)
			}
		}
		_, err := q.GetReadWriteLock("n").ForceUnlock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		_, err = q.GetReadWriteLock("n").IsLocked(t.Context())
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		locktest.Unlock(t, plain)
		for _, side := range sides(q.GetReadWriteLock("n")) {
			h := locktest.Acquire(t, t.Context(), side)
			_, err := p.GetLock("n").TryLock(t.Context())
			require.ErrorIs(t, err, redlatch.ErrWrongType)
			locktest.Unlock(t, h)
		}
	})
}
