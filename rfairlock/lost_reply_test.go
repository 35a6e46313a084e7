package rfairlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// life is what a waiter goes through, step by step. The replies of the first scripts of one step are lost.
var life = []string{"queue", "hand-off", "nested lock", "nested unlock", "unlock"}

// F2
func TestLostReplyChangesNoOutcome(t *testing.T) {
	for mode, opt := range map[string]redlatch.Option{
		"liveness": redlatch.WithFairWaitTimeout(good), "java": redlatch.WithRedissonFairQueue(),
	} {
		for sick, step := range life {
			for n := 1; n <= 4; n++ {
				t.Run(fmt.Sprintf("%s, %s, %d", mode, step, n), func(t *testing.T) {
					locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
						p := b.Peer(t, opt)
						live(t, b, p, b.Peer(t, opt), func(i int) {
							if i == sick {
								p.LoseReplies(n)
							}
						})
					})
				})
			}
		}
	}
}

// live takes a waiter of a peer through its life, while one of another peer stands behind it.
func live(t *testing.T, b *locktest.Bubble, p, other *locktest.Peer, before func(step int)) {
	t.Helper()
	b.Foreign(t, key, time.Hour)
	before(0)
	first := locktest.Begin(func() (*rlock.Hold, error) { return p.GetFairLock(key).Lock(t.Context()) })
	time.Sleep(4 * time.Second)
	require.Len(t, waiters(t, b.Redis), 1, "it stands in the queue once")
	second := await(t, t.Context(), b.Redis, other.GetFairLock(key))
	before(1)
	b.Delete(t, key)
	h := locktest.Next(t, first)
	assert.Equal(t, map[string]string{h.Owner(): "1"}, b.Hash(t, key))
	require.Len(t, waiters(t, b.Redis), 1)
	before(2)
	inner := locktest.Acquire(t, h.Context(), p.GetFairLock(key))
	assert.Equal(t, map[string]string{h.Owner(): "2"}, b.Hash(t, key))
	before(3)
	locktest.Unlock(t, inner)
	assert.Equal(t, map[string]string{h.Owner(): "1"}, b.Hash(t, key))
	before(4)
	locktest.Unlock(t, h)
	locktest.Unlock(t, locktest.Next(t, second))
	p.LoseReplies(0)
	time.Sleep(time.Minute) // whatever is unsettled is settled
	assert.Empty(t, b.Keys(t))
	locktest.Free(t, p.GetFairLock(key))
}

// F2
func TestLostReplyOfALeaveLeavesNobodyInTheQueue(t *testing.T) {
	for lost := 1; lost <= 4; lost++ {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				b.Foreign(t, key, time.Hour)
				warm(t, p)
				ctx, cancel := context.WithCancel(t.Context())
				leaving := await(t, ctx, b.Redis, p.GetFairLock(key))
				second := await(t, t.Context(), b.Redis, b.Peer(t).GetFairLock(key))
				queued := waiters(t, b.Redis)
				p.LoseReplies(lost)
				cancel()
				locktest.Failed(t, leaving, context.Canceled)
				synctest.Wait()
				assert.Equal(t, queued[1:], waiters(t, b.Redis))
				b.Delete(t, key)
				locktest.Unlock(t, locktest.Next(t, second))
				time.Sleep(time.Minute)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

// warm has Redis know the scripts of a wait that ends without the lock, so that the next reply of one is that of its run.
func warm(t *testing.T, p *locktest.Peer) {
	t.Helper()
	_, err := p.GetFairLock(key).Lock(t.Context(), rlock.WithWait(time.Millisecond))
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	synctest.Wait()
}
