package rfairlock_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rfairlock"
)

// crowded returns the lock of a client of its own over the peer's wires, and what fills the client's settler.
func crowded(t *testing.T, p *locktest.Peer) (l *rfairlock.Lock, fill func()) {
	t.Helper()
	e := core.New(p.Redis, core.Config{
		Lease: 30 * time.Second, CallTimeout: 10 * time.Second, TokenTTL: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { e.Close() })
	return rfairlock.New(core.HandleOf(e), key), func() {
		for range 10_000 {
			e.Settler.Add(func(report func(bool)) { report(false) }, e.Clock.Now()+20*time.Second)
		}
	}
}

// F2
func TestLateReleaseFreesNoOtherHoldWhenTooMuchIsUnsettled(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t)
		l, fill := crowded(t, p)
		locktest.Unlock(t, granted(t, b, l)) // Redis knows the scripts
		h := granted(t, b, l)
		fill()
		p.Withhold(1)
		locktest.Unlock(t, h) // it was sent twice
		h = locktest.Acquire(t, t.Context(), l)
		require.Equal(t, 1, p.Deliver(t))
		locktest.Refused(t, other.GetFairLock(key))
		locktest.Unlock(t, h)
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

// F2
func TestLeaveIsSentOnceWhenTooMuchIsUnsettled(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l, fill := crowded(t, p)
		b.Foreign(t, key, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		leaving := await(t, ctx, b.Redis, l)
		left := waiters(t, b.Redis)[0]
		fill()
		cancel()
		locktest.Failed(t, leaving, context.Canceled)
		synctest.Wait()
		assert.Empty(t, waiters(t, b.Redis))
		next := await(t, t.Context(), b.Redis, l)
		assert.NotContains(t, waiters(t, b.Redis), left, "its leaving may arrive yet")
		b.Delete(t, key)
		locktest.Unlock(t, locktest.Next(t, next))
	})
}
