package rmultilock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// life is what may happen to a lock, step by step.
var life = []struct {
	name string
	do   func(t *testing.T, p *patient)
}{
	{"Lock", func(t *testing.T, p *patient) { p.outer = locktest.Acquire(t, t.Context(), p.lock) }},
	{"nested Lock", func(t *testing.T, p *patient) { p.inner = locktest.Acquire(t, p.outer.Context(), p.lock) }},
	{"Extend", func(t *testing.T, p *patient) { require.NoError(t, p.inner.Extend(t.Context(), 20*time.Second)) }},
	{"nested Unlock", func(t *testing.T, p *patient) { locktest.Unlock(t, p.inner) }},
	{"Unlock", func(t *testing.T, p *patient) { locktest.Unlock(t, p.outer) }},
}

// patient is a lock that loses replies.
type patient struct {
	lock         rlock.Locker
	outer, inner *rlock.Hold
}

// F2
func TestLostReplyChangesNoOutcome(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				mine, others := s.peers(t), s.peers(t)
				for sick, step := range life {
					for nodes := 1; nodes <= 3; nodes++ {
						for n := 1; n <= 4; n++ {
							name := fmt.Sprintf("%s: %d from %d", step.name, n, nodes)
							p := &patient{lock: both(mine[0].Client, mine.locks(name)...)[kind]}
							for i, step := range life {
								if i == sick {
									for _, peer := range mine[:nodes] {
										peer.LoseReplies(n)
									}
								}
								step.do(t, p)
								require.False(t, t.Failed(), "%s, in %s", name, step.name)
								if step.name != "Unlock" {
									locktest.Live(t, p.outer.Context())
									locktest.Refused(t, both(others[0].Client, others.locks(name)...)[kind])
								}
							}
							for _, peer := range mine {
								peer.LoseReplies(0)
							}
							s.empty(t, 2*lease)
						}
					}
				}
			})
		})
	}
}

// F2
func TestTryWhoseReplyIsLostLeavesNothing(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t)
				for nodes := 1; nodes <= 3; nodes++ {
					for _, peer := range p[:nodes] {
						peer.LoseReplies(1)
					}
					h, err := both(p[0].Client, p.locks("a")...)[kind].TryLock(t.Context())
					if err == nil {
						assert.Equal(t, "RedLock", kind, "a single try of a multi-lock needs all answers")
						locktest.Unlock(t, h)
					}
					for _, peer := range p {
						peer.LoseReplies(0)
					}
					s.empty(t, 2*lease)
				}
			})
		})
	}
}

// A release whose reply was lost is repeated while the server is slow: several of its repetitions are answered. They are one lock's.
//
// F2
func TestRepeatedReleaseOfOneLockCountsOnce(t *testing.T) {
	for kind, n := range map[string]int{"MultiLock": 2, "RedLock": 3} {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, n)
				p := s.peers(t, redlatch.WithWatchdogTimeout(30*time.Second))
				h := locktest.Acquire(t, t.Context(), both(p[0].Client, p.locks("a")...)[kind])
				synctest.Wait()
				require.Equal(t, n, s.have(t, "a"))

				for _, peer := range p[1:] {
					peer.Blackhole(true)
				}
				p[0].LoseReplies(1)
				s[0].Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
					if cmd == "EVALSHA" {
						time.Sleep(300 * time.Millisecond)
					}
					return false
				})
				err := h.Unlock(t.Context())
				assert.Equal(t, n-1, s.have(t, "a"), "all servers but one have the lock")
				require.ErrorIs(t, err, redlatch.ErrUnknown)
				s[0].Mini.Server().SetPreHook(nil)
				for _, peer := range p[1:] {
					peer.Blackhole(false)
				}
			})
		})
	}
}
