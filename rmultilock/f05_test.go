package rmultilock_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rmultilock"
)

// scripts returns how many scripts the clients have sent.
func (p peers) scripts() (n int) {
	for _, peer := range p {
		n += peer.Scripts()
	}
	return n
}

func TestF05_NothingIsRenewedAfterUnlock(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t)
				for range runs(30, 1000) {
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

func TestF05_UnlockThatReachesNobodyEndsRenewal(t *testing.T) {
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

// counted is a lock that counts how often its holds are extended.
type counted struct {
	rlock.Locker
	n *atomic.Int32
}

func (c counted) TryLock(ctx context.Context, opts ...rlock.Option) (*rlock.Hold, error) {
	h, err := c.Locker.TryLock(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return rlock.NewHold("counted", countedHold{foreignHold{h, c.Name()}, c.n}), nil
}

type countedHold struct {
	foreignHold
	n *atomic.Int32
}

func (h countedHold) Extend(ctx context.Context, d time.Duration) error {
	h.n.Add(1)
	return h.foreignHold.Extend(ctx, d)
}

func TestF05_RedLockOfClosedClientsIsRenewedNoMore(t *testing.T) {
	var extended atomic.Int32
	for name, wrap := range map[string]func(rlock.Locker) rlock.Locker{
		"plain":        func(l rlock.Locker) rlock.Locker { return l },
		"a user's own": func(l rlock.Locker) rlock.Locker { return counted{l, &extended} },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t, redlatch.WithCloseGrace(0))
				var locks []rlock.Locker
				for _, l := range p.locks("a") {
					locks = append(locks, wrap(l))
				}
				h := locktest.Acquire(t, t.Context(), p[0].GetRedLock(locks...))
				time.Sleep(2 * lease)
				require.NoError(t, p[0].Close())
				time.Sleep(2 * lease)
				locktest.Live(t, h.Context())
				require.True(t, rmultilock.Renews(h), "two of three go on")
				require.NoError(t, p[1].Close())
				require.NoError(t, p[2].Close())
				locktest.Ended(t, h.Context(), redlatch.ErrClosed)
				time.Sleep(lease)
				assert.False(t, rmultilock.Renews(h))
				sent := extended.Load()
				time.Sleep(5 * lease)
				assert.Equal(t, sent, extended.Load(), "nothing is asked any more")
				s.empty(t, 0)
				require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
			})
		})
	}
}
