package rmultilock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// mishaps are ways in which the next scripts of a client fail.
var mishaps = map[string]func(p *locktest.Peer, n int){
	"lost request": func(p *locktest.Peer, n int) { p.Withhold(n) },
	"lost reply":   func(p *locktest.Peer, n int) { p.LoseReplies(n) },
}

// F6
func TestTwoOfThreeRenewalsMayFail(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		for how, fail := range mishaps {
			t.Run(kind+", "+how, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := newServers(t, b, 3)
					mine, others := s.peers(t), s.peers(t)
					h := locktest.Acquire(t, t.Context(), both(mine[0].Client, mine.locks("a")...)[kind])
					time.Sleep(lease / 10)
					require.Equal(t, 3, s.have(t, "a"))
					var seen, failed [3]int
					for i, peer := range mine {
						seen[i] = peer.Scripts() - 3
					}
					const tick = 10 * time.Millisecond
					leases := faulttest.Rounds(t, 10, 200)
					for end := time.Now().Add(time.Duration(leases) * lease); time.Now().Before(end); time.Sleep(tick) {
						for i, peer := range mine {
							if peer.Scripts()-seen[i] >= 3 { // two have failed, and one has not
								seen[i] = peer.Scripts()
								failed[i] += 2
								fail(peer, 2)
							}
							require.Positive(t, s[i].TTL(t, "a"), "server %d has the lock", i)
						}
						locktest.Live(t, h.Context())
					}
					for i, peer := range mine {
						fail(peer, 0)
						assert.Greater(t, failed[i], 10, "renewals that failed")
					}
					locktest.Refused(t, both(others[0].Client, others.locks("a")...)[kind])
					locktest.Unlock(t, h)
					s.empty(t, 2*lease)
				})
			})
		}
	}
}

// F6
func TestSilentConnectionsHoldUpNoRenewal(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		mine, others := s.peers(t), s.peers(t)
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		time.Sleep(lease / 10)
		require.Equal(t, 3, s.have(t, "a"))
		for _, peer := range mine {
			peer.HangReplies(1)
		}
		for end := time.Now().Add(4 * lease); time.Now().Before(end); time.Sleep(lease / 100) {
			locktest.Live(t, h.Context())
			require.Equal(t, 3, s.have(t, "a"))
		}
		locktest.Refused(t, others.red("a"))
		locktest.Unlock(t, h)
		s.empty(t, 2*lease)
	})
}

// Every answer comes later than a renewal is waited for. It counts all the same.
//
// F6
func TestSlowAnswersRenewALease(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		mine := s.peers(t)
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		synctest.Wait() // all three are connected
		for _, one := range s {
			one.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
				if cmd == "EVALSHA" {
					time.Sleep(lease / 8)
				}
				return false
			})
		}
		for end := time.Now().Add(10 * lease); time.Now().Before(end); time.Sleep(lease / 100) {
			locktest.Live(t, h.Context())
		}
		for _, one := range s {
			one.Mini.Server().SetPreHook(nil)
		}
		locktest.Unlock(t, h)
		s.empty(t, 2*lease)
	})
}
