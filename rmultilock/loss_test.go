package rmultilock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// needed is how many of three servers a holder cannot do without.
var needed = map[string]int{"MultiLock": 1, "RedLock": 2}

// F1
func TestHolderIsToldBeforeAnotherCanAcquire(t *testing.T) {
	for kind, n := range needed {
		for how, fault := range faults {
			t.Run(kind+", "+how, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := newServers(t, b, 3)
					mine, others := s.peers(t), s.peers(t)
					for run := range faulttest.Rounds(t, 5, 100) {
						name := fmt.Sprint("a", run)
						h := locktest.Acquire(t, t.Context(), both(mine[0].Client, mine.locks(name)...)[kind])
						inner := locktest.Acquire(t, h.Context(), both(mine[0].Client, mine.locks(name)...)[kind])
						next := locktest.Begin(func() (*rlock.Hold, error) {
							return both(others[0].Client, others.locks(name)...)[kind].Lock(t.Context())
						})
						time.Sleep(rand.N(lease))
						fault(mine[:n], true)

						<-h.Context().Done()
						assert.Positive(t, s[:n].longestTTL(t, name), "the lease has not ended in Redis")
						taken := locktest.Next(t, next)
						for level, ctx := range []context.Context{h.Context(), inner.Context()} {
							select {
							case <-ctx.Done():
							default:
								require.Fail(t, "a holder is not told", "level %d", level)
							}
							require.ErrorIs(t, context.Cause(ctx), rlock.ErrLost)
						}
						require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
						locktest.Live(t, taken.Context())
						locktest.Unlock(t, taken)
						fault(mine[:n], false)
						time.Sleep(2 * time.Second) // go-redis remembers for a second that dials were refused
						s.empty(t, 2*lease)
					}
				})
			})
		}
	}
}

// The attempt for the third part arrives late: meanwhile the first part was lost, and another client has had the lock, and has released it.
// So the third part does not make up for the first one.
func TestPartThatIsGrantedLateDoesNotMakeUpForALostOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		long := redlatch.WithWatchdogTimeout(30 * time.Second)
		mine, others := s.peers(t, long), s.peers(t, long)
		for _, p := range []peers{mine, others} {
			locktest.Free(t, p.red("a")) // all are connected, and know the scripts
			synctest.Wait()
		}
		var scripts atomic.Int32
		s[2].Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if cmd == "EVALSHA" && scripts.Add(1) == 1 {
				time.Sleep(time.Second)
			}
			return false
		})
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		synctest.Wait() // the third attempt has reached its server
		require.Equal(t, 2, s.have(t, "a"))
		s[0].Delete(t, "a") // it has restarted
		other, err := others.red("a").TryLock(t.Context())
		require.NoError(t, err)
		locktest.Live(t, other.Context())
		locktest.Unlock(t, other)
		require.Equal(t, 1, s.have(t, "a"))
		time.Sleep(2 * time.Second)
		s[2].Mini.Server().SetPreHook(nil)

		time.Sleep(15 * time.Second) // every part was renewed
		locktest.Ended(t, h.Context(), rlock.ErrLost)
	})
}
