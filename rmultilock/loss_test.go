package rmultilock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/locktest"
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
					for run := range faulttest.Rounds(t, 10, 100) {
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
