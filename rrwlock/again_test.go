package rrwlock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

func TestF02_WriterWhoseLastReadIsUnsettledIsRefused(t *testing.T) {
	for what, when := range map[string]struct{ acquiring, releasing int }{
		"a lost try": {acquiring: 1}, "a lost release": {releasing: 1},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetReadWriteLock("n")
				w := locktest.Acquire(t, t.Context(), l)
				locktest.Unlock(t, locktest.Acquire(t, w.Context(), l.RLocker())) // Redis knows the scripts
				p.Withhold(when.acquiring)
				r := locktest.Acquire(t, w.Context(), l.RLocker())
				p.Withhold(when.releasing)
				locktest.Unlock(t, r)
				_, err := l.TryRLock(w.Context())
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.Equal(t, 1, p.Deliver(t))
				r = locktest.Acquire(t, w.Context(), l.RLocker())
				locktest.Unlock(t, w)
				locktest.Unlock(t, r)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}
