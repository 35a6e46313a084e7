package rmultilock_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// scripts returns how many scripts the clients have sent.
func (p peers) scripts() (n int) {
	for _, peer := range p {
		n += peer.Scripts()
	}
	return n
}

// F5
func TestNothingIsRenewedAfterUnlock(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t)
				for range faulttest.Rounds(t, 30, 500) {
					h := locktest.Acquire(t, t.Context(), both(p[0].Client, p.locks("a")...)[kind])
					time.Sleep(lease/3 - lease/20 + rand.N(lease/10)) // about when it is renewed
					locktest.Unlock(t, h)
					s.empty(t, 100*time.Millisecond)
					synctest.Wait()
					sent := p.scripts()
					time.Sleep(3 * lease)
					assert.Equal(t, sent, p.scripts(), "nothing is sent any more")
					s.empty(t, 0)
				}
			})
		})
	}
}

// F5
func TestUnlockThatReachesNobodyEndsRenewal(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t)
				h := locktest.Acquire(t, t.Context(), both(p[0].Client, p.locks("a")...)[kind])
				time.Sleep(2 * lease)
				for _, peer := range p {
					peer.Withhold(1) // the release is on its way for ever, and what comes after it arrives
				}
				done := locktest.Begin(func() (*rlock.Hold, error) { return nil, h.Unlock(t.Context()) })
				least := make([]time.Duration, len(s))
				for i, server := range s {
					least[i] = server.TTL(t, "a")
				}
				for range 100 {
					time.Sleep(lease / 100)
					for i, server := range s {
						left := server.TTL(t, "a")
						assert.LessOrEqual(t, left, least[i], "a release sets no lease")
						least[i] = left
					}
				}
				require.NoError(t, locktest.Fetch(t, done).Err)
				s.empty(t, 0)
			})
		})
	}
}

// F5
func TestRedLockOfClosedClientsSendsNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t, redlatch.WithCloseGrace(0))
		h := locktest.Acquire(t, t.Context(), p.red("a"))
		time.Sleep(2 * lease)
		require.NoError(t, p[0].Close())
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		assert.Equal(t, 2, s.have(t, "a"), "two of three go on")
		require.NoError(t, p[1].Close())
		require.NoError(t, p[2].Close())
		locktest.Ended(t, h.Context(), redlatch.ErrClosed)
		synctest.Wait()
		sent := p.scripts()
		time.Sleep(5 * lease)
		assert.Equal(t, sent, p.scripts(), "nothing is asked any more")
		s.empty(t, 0)
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	})
}
