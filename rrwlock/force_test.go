package rrwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// watched is a context whose deadline is asked for at moments that a test cannot reach otherwise.
type watched struct {
	context.Context
	asked func()
}

func (w watched) Deadline() (time.Time, bool) {
	w.asked()
	return w.Context.Deadline()
}

func TestForceUnlockWhileTheWriterBecomesAReader(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l, rlock.WithLease(time.Hour))
		forced := false
		ctx := watched{w.Context(), func() {
			if forced || b.Hash(t, "n")[w.Owner()] == "" { // the read lock is granted, but not yet returned
				return
			}
			forced = true
			b.Mini.Server().SetPreHook(slowly)
			_, err := l.ForceUnlock(t.Context())
			assert.NoError(t, err)
		}}
		r := locktest.Acquire(t, ctx, l.RLocker(), rlock.WithLease(time.Hour))
		require.True(t, forced)
		time.Sleep(time.Second)
		for _, h := range []*rlock.Hold{r, w} {
			ended := make(chan error, 1) // room for the answer: the test may be over
			go func() { ended <- h.Unlock(t.Context()) }()
			select {
			case err := <-ended:
				require.ErrorIs(t, err, rlock.ErrNotHeld)
			case <-time.After(time.Minute):
				require.Fail(t, "an Unlock hangs")
			}
		}
		locktest.Free(t, l)
	})
}

// slowly has the server take its time for a command.
func slowly(*server.Peer, string, ...string) bool {
	time.Sleep(moment)
	return false
}
