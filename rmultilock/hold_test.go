package rmultilock_test

import (
	"context"
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

func TestContextHasEndedWhenItsDeadlineIsOver(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var held atomic.Pointer[rlock.Hold]
				var seen atomic.Int32
				// An observer hears of a part's loss before the whole does.
				hear := redlatch.Observer{HoldEnd: func(context.Context, redlatch.HoldEndEvent) {
					if h := held.Load(); !time.Now().Before(h.ExpiresAt()) {
						seen.Add(1)
						assert.ErrorIs(t, h.Context().Err(), context.Canceled)
					}
				}}
				p := b.Peer(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithObserver(hear))
				h := locktest.Acquire(t, t.Context(), both(p.Client, p.GetLock("a"), p.GetLock("b"))[kind])
				held.Store(h)
				synctest.Wait()
				p.Blackhole(true)
				locktest.Ended(t, h.Context(), rlock.ErrLost)
				synctest.Wait()
				assert.Positive(t, seen.Load())
				p.Blackhole(false)
			})
		})
	}
}

func TestObserverHearsOfRenewals(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var renewed, lost, failed atomic.Int64
				p := b.Peer(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithObserver(redlatch.Observer{Renewed: func(n, gone int, err error) {
					renewed.Add(int64(n))
					lost.Add(int64(gone))
					if err != nil {
						failed.Add(1)
					}
				}}))
				h := locktest.Acquire(t, t.Context(), both(p.Client, p.GetLock("a"), p.GetLock("b"), p.GetLock("c"))[kind])
				time.Sleep(2 * lease)
				assert.GreaterOrEqual(t, renewed.Load(), int64(2*3*3), "each third of a lease, three parts")
				assert.Zero(t, lost.Load())
				b.Delete(t, "a")
				time.Sleep(lease / 2)
				assert.EqualValues(t, 1, lost.Load())
				assert.Zero(t, failed.Load())
				_ = h.Unlock(t.Context()) // a multi-lock is lost with one part, a RedLock not
			})
		})
	}
}

func TestUnlockWaitsNoLongerThanTheLease(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := both(p.Client, p.GetLock("a"), p.GetLock("b"))[kind]
				h := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(300*time.Millisecond))
				synctest.Wait()
				p.Blackhole(true)
				start := time.Now()
				require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrUnknown)
				assert.LessOrEqual(t, time.Since(start), 310*time.Millisecond)
				p.Blackhole(false)
			})
		})
	}
}
