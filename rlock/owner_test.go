package rlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

func TestRestartedServiceTakesItsLockOver(t *testing.T) {
	for name, get := range kinds {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				before := b.Peer(t, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
				outer := locktest.Acquire(t, t.Context(), get(before.Client, "orders"), rlock.WithOwner("billing-1"))
				require.NoError(t, before.Close())
				require.NoError(t, b.Redis.HSet(t.Context(), "orders", "billing-1", 3).Err())
				time.Sleep(10 * time.Second)

				after := b.Peer(t)
				l := get(after.Client, "orders")
				h, err := l.TryLock(t.Context(), rlock.WithOwner("billing-1"))
				require.NoError(t, err)
				assert.Equal(t, map[string]string{"billing-1": "1"}, b.Hash(t, "orders"), "levels are set to 1")
				assert.Equal(t, lease, b.TTL(t, "orders"))
				assert.Equal(t, "billing-1", h.Owner())
				assert.ErrorIs(t, outer.Unlock(t.Context()), redlatch.ErrClosed)
				assert.NotEmpty(t, b.Keys(t))
				if h.Token() != 0 {
					assert.Greater(t, h.Token(), outer.Token(), "a take-over is an acquisition")
				}
				time.Sleep(2 * lease)
				locktest.Live(t, h.Context())
				locktest.Unlock(t, h)
			})
		})
	}
}

func TestOwnerIDsOfOneClientExclude(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l, rlock.WithOwner("billing-1"))
		waiting := queue(t, l, rlock.WithOwner("billing-1"))
		time.Sleep(2 * lease)
		require.Empty(t, waiting)
		locktest.Unlock(t, h)
		h = locktest.Next(t, waiting)
		_, err := p.GetFencedLock("orders").TryLock(t.Context(), rlock.WithOwner("billing-1"))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		other := locktest.Acquire(t, t.Context(), p.GetLock("invoices"), rlock.WithOwner("billing-1"))
		locktest.Unlock(t, other)
		locktest.Unlock(t, h)
	})
}

// ofClient are the locks that a client keeps in a hash of one format.
var ofClient = map[string]func(*redlatch.Client, string) rlock.Locker{
	"Lock": kinds["Lock"], "FencedLock": kinds["FencedLock"],
	"FairLock": func(c *redlatch.Client, name string) rlock.Locker { return c.GetFairLock(name) },
}

func TestOwnerIDsOfOneClientExcludeInFairLocksToo(t *testing.T) {
	mine := rlock.WithOwner("billing-1")
	for held, hold := range ofClient {
		for wanted, want := range ofClient {
			t.Run(held+" and "+wanted, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := b.Peer(t)
					h := locktest.Acquire(t, t.Context(), hold(p.Client, "orders"), mine)
					l := want(p.Client, "orders")
					_, err := l.TryLock(t.Context(), mine)
					require.ErrorIs(t, err, rlock.ErrNotAcquired)
					waiting := queue(t, l, mine)
					time.Sleep(2 * lease)
					require.Empty(t, waiting)
					locktest.Live(t, h.Context())
					locktest.Unlock(t, h)
					locktest.Unlock(t, locktest.Next(t, waiting))
					assert.Empty(t, b.Hash(t, "orders"))
				})
			})
		}
	}
}

func TestTakeOverSparesAReadWriteLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		mine := rlock.WithOwner("billing-1")
		p, q := b.Peer(t), b.Peer(t)
		rw := p.GetReadWriteLock("orders")
		reader := locktest.Acquire(t, t.Context(), rw.RLocker(), mine)
		stranger := locktest.Acquire(t, t.Context(), rw.RLocker())
		before := b.Hash(t, "orders")
		for _, l := range []rlock.Locker{q.GetLock("orders"), q.GetFencedLock("orders"), q.GetFairLock("orders")} {
			for verb, err := range locktest.Acquiring(t.Context(), l, mine, rlock.WithWait(time.Minute)) {
				require.ErrorIs(t, err, redlatch.ErrWrongType, verb)
			}
		}
		assert.Equal(t, before, b.Hash(t, "orders"))
		locktest.Unlock(t, reader)
		locktest.Unlock(t, stranger)
	})
}

// What settles a try under an id must not end a hold of another kind under it.
func TestLostTryUnderAnOwnerIDSparesAReader(t *testing.T) {
	for _, wanted := range []string{"Lock", "FencedLock", "FairLock"} {
		t.Run(wanted, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				mine := rlock.WithOwner("billing-1")
				p := b.Peer(t)
				reader := locktest.Acquire(t, t.Context(), p.GetReadWriteLock("orders").RLocker(), mine)
				l := ofClient[wanted](p.Client, "orders")
				p.LoseReplies(1)
				_, err := l.Lock(t.Context(), mine, rlock.WithWait(time.Second))
				require.Error(t, err)
				p.LoseReplies(0)
				time.Sleep(2 * lease)
				locktest.Live(t, reader.Context())
				_, err = b.Peer(t).GetReadWriteLock("orders").TryLock(t.Context())
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				locktest.Unlock(t, reader)
			})
		})
	}
}

func TestOwnerIDIsFreeAgainAfterEveryEnd(t *testing.T) {
	mine := rlock.WithOwner("billing-1")
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetLock("orders")
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), l, mine))

		h := locktest.Acquire(t, t.Context(), l, mine)
		b.Delete(t, "orders")
		<-h.Context().Done()

		h = locktest.Acquire(t, t.Context(), l, mine, rlock.WithLease(time.Second))
		<-h.Context().Done()
		time.Sleep(time.Second)

		b.Foreign(t, "orders", 0)
		_, err := l.TryLock(t.Context(), mine)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		_, err = l.Lock(t.Context(), mine, rlock.WithWait(time.Second))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Lock(ctx, mine)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		b.Delete(t, "orders")

		p.LoseReplies(1)
		h = locktest.Acquire(t, t.Context(), l, mine)
		assert.Equal(t, map[string]string{"billing-1": "1"}, b.Hash(t, "orders"))
		locktest.Unlock(t, h)
		h, err = l.TryLock(t.Context(), mine)
		require.NoError(t, err)
		locktest.Unlock(t, h)
	})
}

func TestOwnOwnerIDsDoNotReenter(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		h := locktest.Acquire(t, t.Context(), l, rlock.WithOwner("billing-1"))
		_, err := l.TryLock(h.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		_, err = l.TryLock(h.Context(), rlock.WithoutReentry())
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "nothing to nest in")
		locktest.Unlock(t, h)

		h = locktest.Acquire(t, t.Context(), l)
		_, err = l.Lock(h.Context(), rlock.WithOwner("billing-1"), rlock.WithWait(time.Second))
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "an owner id of its own is a stranger's")
		locktest.Unlock(t, h)
	})
}

func TestOwnerIDsNameTheClient(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		a, other := locktest.Acquire(t, t.Context(), p.GetLock("a")), locktest.Acquire(t, t.Context(), p.GetLock("b"))
		id, sequence, ok := strings.Cut(a.Owner(), ":")
		require.True(t, ok)
		assert.Len(t, id, 36, "a UUID")
		assert.Regexp(t, `^[0-9]+$`, sequence)
		assert.True(t, strings.HasPrefix(other.Owner(), id+":"))
		assert.NotEqual(t, a.Owner(), other.Owner())
		locktest.Unlock(t, a)
		locktest.Unlock(t, other)
	})
}

func TestLongestOwnerIDWorks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		for _, id := range []string{"a", "mode2", "write", ":write:", "!~", strings.Repeat("x", 200)} {
			h := locktest.Acquire(t, t.Context(), l, rlock.WithOwner(id))
			assert.Equal(t, map[string]string{id: "1"}, b.Hash(t, "orders"))
			locktest.Unlock(t, h)
		}
	})
}
