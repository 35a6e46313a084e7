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
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

// sides are the two modes of a lock.
func sides(l *rrwlock.Lock) map[string]rlock.Locker {
	return map[string]rlock.Locker{"writer": l, "reader": l.RLocker()}
}

func TestF01_HoldersHearOfTheLossFirst(t *testing.T) {
	for _, mode := range []string{"writer", "reader"} {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			p := b.Peer(t, redlatch.WithLease(3*time.Second))
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

func TestF02_LostRepliesLeaveOneHold(t *testing.T) {
	for lost := 1; lost <= 4; lost++ {
		for _, mode := range []string{"writer", "reader"} {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				side := sides(p.GetReadWriteLock("n"))[mode]
				locktest.Free(t, side) // the scripts are known
				p.LoseReplies(lost)
				h := locktest.Acquire(t, t.Context(), side)
				time.Sleep(10 * time.Second) // what was left unknown is settled
				assert.Len(t, b.Hash(t, "n"), 2, "the mode and one holder")
				locktest.Refused(t, b.Peer(t).GetReadWriteLock("n"))

				p.LoseReplies(lost)
				inner := locktest.Acquire(t, h.Context(), side)
				p.LoseReplies(lost)
				require.NoError(t, inner.Unlock(t.Context()))
				field := h.Owner()
				if mode == "writer" {
					field += ":write"
				}
				assert.Equal(t, "1", b.Hash(t, "n")[field], "one level")

				p.LoseReplies(lost)
				require.NoError(t, h.Unlock(t.Context()))
				p.LoseReplies(0)
				time.Sleep(time.Minute)
				assert.Empty(t, b.Keys(t))
			})
		}
	}
}

func TestF02_LostRepliesOfADowngrade(t *testing.T) {
	for lost := 1; lost <= 4; lost++ {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			p := b.Peer(t)
			l, other := p.GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
			w := locktest.Acquire(t, t.Context(), l)
			for range 3 {
				p.LoseReplies(lost)
				r := locktest.Acquire(t, w.Context(), l.RLocker())
				p.LoseReplies(lost)
				require.NoError(t, r.Unlock(t.Context()))
				assert.NotContains(t, b.Hash(t, "n"), w.Owner())
			}
			p.LoseReplies(lost)
			r := locktest.Acquire(t, w.Context(), l.RLocker())
			p.LoseReplies(lost)
			require.NoError(t, w.Unlock(t.Context()))
			p.LoseReplies(0)
			time.Sleep(time.Minute)
			locktest.Live(t, r.Context())
			assert.Equal(t, map[string]string{"mode": "read", r.Owner(): "1"}, b.Hash(t, "n"))
			locktest.Refused(t, other)
			locktest.Free(t, other.RLocker())
			locktest.Unlock(t, r)
			time.Sleep(time.Minute)
			assert.Empty(t, b.Keys(t))
		})
	}
}

func TestF02_LostReplyOfAWriterThatGivesUp(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		r := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("n").RLocker())
		ctx, cancel := context.WithCancel(t.Context())
		waiting := begin(t, ctx, p.GetReadWriteLock("n"))
		p.LoseReplies(2)
		cancel()
		locktest.Failed(t, waiting, context.Canceled)
		time.Sleep(5 * time.Second)
		assert.ElementsMatch(t, []string{"n", "{n}:" + r.Owner() + ":rwlock_timeout:1"}, b.Keys(t), "no mark")
		locktest.Unlock(t, r)
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

// TestF03_CancelledCallsLeaveNothing cancels calls all over their way to a server that is far away.
func TestF03_CancelledCallsLeaveNothing(t *testing.T) {
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	rdb := server.Client(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	far, near := clientAt(t, proxy.Addr()), clientAt(t, server.Addr())
	proxy.Delay(10 * time.Millisecond)
	t.Cleanup(func() { proxy.Delay(0) })
	lag := faulttest.MeasureLag(t, server.Addr())
	const lanes = 10
	n := counted(40, 1000)
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

func TestF04_WaitersGoOnWithoutMessages(t *testing.T) {
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

func TestF05_NothingIsRenewedAfterTheRelease(t *testing.T) {
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

func TestF06_HoldsAreRenewedForAsLongAsTheyLast(t *testing.T) {
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

func TestReaderWhoseIDIsInUseShutsNobodyOut(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n").RLocker()
		mine := rlock.WithOwner("billing-1")
		h := locktest.Acquire(t, t.Context(), l, mine)
		second := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context(), mine) })
		time.Sleep(time.Second)
		require.Empty(t, second)
		start := time.Now()
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), l, rlock.WithWait(time.Minute)))
		try, err := l.TryLock(t.Context())
		require.NoError(t, err)
		locktest.Unlock(t, try)
		assert.Less(t, time.Since(start), time.Second)
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, second))
	})
}
