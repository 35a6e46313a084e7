package rlock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// turn returns a client without hand-off whose turn has begun: first holds the lock, and a waiter stands behind it.
func turn(t *testing.T, b *locktest.Bubble, opts ...redlatch.Option) (p *locktest.Peer, first *rlock.Hold, second <-chan locktest.Outcome) {
	t.Helper()
	p = b.Peer(t, append(opts, redlatch.WithHandoffBudget(0))...)
	l := p.GetLock("orders")
	before := locktest.Acquire(t, t.Context(), l)
	waiting := queue(t, l)
	second = queue(t, l)
	locktest.Unlock(t, before)
	return p, locktest.Next(t, waiting), second
}

func TestWithoutHandOffTheLockPassesInOneScriptDuringATurn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, first, waiting := turn(t, b)
		third := queue(t, p.GetLock("orders"))
		locktest.Unlock(t, first) // the script's first use costs a command more
		first, waiting = locktest.Next(t, waiting), third
		sent := p.Scripts()
		locktest.Unlock(t, first)
		second := locktest.Next(t, waiting)
		assert.Equal(t, sent+1, p.Scripts(), "one round trip for the release and the acquisition: %v", p.Sent())
		assert.NotEqual(t, first.Owner(), second.Owner(), "Redis knows who holds it")
		assert.Equal(t, map[string]string{second.Owner(): "1"}, b.Hash(t, "orders"))
		require.ErrorIs(t, context.Cause(first.Context()), rlock.ErrUnlocked)
		require.ErrorIs(t, first.Unlock(t.Context()), rlock.ErrNotHeld)
		time.Sleep(2 * lease)
		locktest.Live(t, second.Context())
		locktest.Unlock(t, second)
		assert.Empty(t, b.Keys(t))
	})
}

func TestTurnEnds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, first, waiting := turn(t, b)
		time.Sleep(time.Millisecond)
		sent := p.Scripts()
		locktest.Unlock(t, first)
		locktest.Unlock(t, locktest.Next(t, waiting))
		assert.Equal(t, sent+3, p.Scripts(), "a release, an acquisition, and the last release")
	})
}

func TestPassWhoseReplyIsLostFreesBothSides(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, first, waiting := turn(t, b)
		p.LoseReplies(1)
		locktest.Unlock(t, first)
		second := locktest.Next(t, waiting)
		assert.Equal(t, map[string]string{second.Owner(): "1"}, b.Hash(t, "orders"))
		locktest.Unlock(t, second)
		assert.Empty(t, b.Keys(t))
	})
}

func TestPassOfALostLockIsNotHeldAndTheWaiterGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		_, first, waiting := turn(t, b)
		b.Delete(t, "orders")
		require.ErrorIs(t, first.Unlock(t.Context()), rlock.ErrNotHeld)
		locktest.Unlock(t, locktest.Next(t, waiting))
		assert.Empty(t, b.Keys(t))
	})
}

func TestPassToAWaiterThatGaveUpFreesTheLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithHandoffBudget(0))
		l := p.GetLock("orders")
		before := locktest.Acquire(t, t.Context(), l)
		waiting := queue(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		gone := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx) })
		synctest.Wait()
		locktest.Unlock(t, before)
		first := locktest.Next(t, waiting)

		p.Blackhole(true)
		unlocked := make(chan error, 1) // one answer
		go func() { unlocked <- first.Unlock(t.Context()) }()
		synctest.Wait()
		cancel()
		outcome := <-gone
		require.ErrorIs(t, outcome.Err, context.Canceled)
		p.Blackhole(false)
		require.NoError(t, <-unlocked)
		time.Sleep(time.Second)
		assert.Empty(t, b.Keys(t))
	})
}

func TestCloseDuringAPassLeavesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, first, waiting := turn(t, b)
		p.Blackhole(true)
		unlocked := make(chan error, 1) // one answer
		go func() { unlocked <- first.Unlock(t.Context()) }()
		synctest.Wait()
		closed := make(chan error, 1) // one answer
		go func() { closed <- p.Close() }()
		synctest.Wait()
		require.ErrorIs(t, (<-waiting).Err, redlatch.ErrClosed)
		p.Blackhole(false)
		require.NoError(t, <-unlocked)
		require.NoError(t, <-closed)
		assert.Empty(t, b.Keys(t))
	})
}

func TestCloseWithoutGraceDuringAPassLeavesNothing(t *testing.T) {
	for name, lost := range map[string]func(p *locktest.Peer){
		"its answer": func(p *locktest.Peer) { p.HangReplies(1) },
		"everything": func(p *locktest.Peer) {
			p.Blackhole(true)
			time.AfterFunc(time.Second, func() { p.Blackhole(false) })
		},
	} {
		for _, opts := range [][]redlatch.Option{nil, {redlatch.WithAbandonOnClose()}} {
			t.Run(name+" abandon "+strconv.Itoa(len(opts)), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p, first, waiting := turn(t, b, append(opts, redlatch.WithCloseGrace(0))...)
					third := queue(t, p.GetLock("orders"))
					locktest.Unlock(t, first) // from here on Redis knows the script
					second := locktest.Next(t, waiting)
					lost(p)
					unlocked := make(chan error, 1) // one answer
					go func() { unlocked <- second.Unlock(t.Context()) }()
					synctest.Wait()
					require.NoError(t, p.Close())
					assert.Empty(t, b.Keys(t))
					require.ErrorIs(t, locktest.Fetch(t, third).Err, redlatch.ErrClosed)
					if err := <-unlocked; err != nil { // its answer was lost
						require.True(t, errors.Is(err, redlatch.ErrUnknown) || errors.Is(err, redlatch.ErrClosed), err)
					}
				})
			})
		}
	}
}
