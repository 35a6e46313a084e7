package rsemaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
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
		assert.LessOrEqual(t, <-one, 3*time.Second+20*time.Millisecond, "no call is before it any more")
	})
}

func TestExtensionThatArrivesLateShortensNoNewerOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetPermitSemaphore("slots")
		givePermits(t, s, 1)
		permit := takePermit(t, s)
		require.NoError(t, permit.Extend(t.Context(), time.Minute)) // Redis knows the script
		p.Withhold(1)
		require.NoError(t, permit.Extend(t.Context(), 10*time.Second))
		require.NoError(t, permit.Extend(t.Context(), time.Hour))
		require.Equal(t, 1, p.Deliver(t))
		time.Sleep(30 * time.Minute)
		locktest.Live(t, permit.Context())
		free, err := b.Peer(t).GetPermitSemaphore("slots").Available(t.Context())
		require.NoError(t, err)
		assert.Zero(t, free, "the permit is out")
		releasePermits(t, permit)
	})
}
