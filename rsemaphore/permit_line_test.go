package rsemaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestAcquireNThatGivesUpLeavesWhatThereIsToThoseBehind(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetPermitSemaphore("permits")
		givePermits(t, s, 1)
		start := time.Now()
		many := make(chan error, 1)
		go func() {
			_, err := s.AcquireN(t.Context(), 2, rsemaphore.WithWait(3*time.Second))
			many <- err
		}()
		synctest.Wait()
		one := make(chan time.Duration, 1)
		go func() {
			p, err := s.Acquire(t.Context())
			if assert.NoError(t, err) {
				one <- time.Since(start)
				releasePermits(t, p)
			}
		}()
		require.ErrorIs(t, <-many, rsemaphore.ErrNotAcquired)
		assert.LessOrEqual(t, <-one, 3*time.Second+20*time.Millisecond, "nobody stands before it any more")
	})
}
