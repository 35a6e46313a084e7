package rmultilock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rmultilock"
)

// both are the two kinds of lock of this package, over the same locks.
func both(c *redlatch.Client, locks ...rlock.Locker) map[string]*rmultilock.Lock {
	return map[string]*rmultilock.Lock{"MultiLock": c.GetMultiLock(locks...), "RedLock": c.GetRedLock(locks...)}
}

func TestBadLocksAreErrInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		a, z := c.GetLock("a"), c.GetLock("z")
		var noLock *rlock.Lock
		var noMulti *rmultilock.Lock
		var noPointer *wrapped
		for what, locks := range map[string][]rlock.Locker{
			"none":                      {},
			"nil":                       {a, nil},
			"nil lock":                  {noLock, a},
			"nil multi-lock":            {a, noMulti},
			"nil of a user's type":      {a, noPointer},
			"the same object twice":     {a, z, a},
			"the same name twice":       {a, c.GetLock("a")},
			"plain and fenced":          {a, c.GetFencedLock("a")},
			"a writer twice":            {c.GetReadWriteLock("a"), c.GetReadWriteLock("a")},
			"a writer and its readers":  {c.GetReadWriteLock("a"), c.GetReadWriteLock("a").RLocker()},
			"a user's own twice":        {wrapped{a, ""}, wrapped{a, ""}},
			"a multi-lock twice":        {c.GetMultiLock(a, z), c.GetMultiLock(z, a)},
			"a bad name":                {a, c.GetLock("")},
			"a bad multi-lock":          {a, c.GetMultiLock()},
			"a multi-lock of a bad one": {c.GetMultiLock(c.GetLock("a}"))},
		} {
			for kind, l := range both(c.Client, locks...) {
				for verb, err := range locktest.Acquiring(t.Context(), l) {
					require.ErrorIs(t, err, redlatch.ErrInvalid, "%s of %s: %s", kind, what, verb)
				}
				assert.NotPanics(t, func() { l.Name() })
			}
		}
		for _, l := range both(c.Client, a, z) {
			var none context.Context // the very mistake
			for verb, err := range locktest.Acquiring(none, l) {
				require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
			}
		}
		assert.Empty(t, c.Sent(), "nothing was sent")
	})
}

func TestOneNameOfSeveralClientsIsSeveralLocks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 2)
		p := s.peers(t)
		for kind, l := range both(p[0].Client, p.locks("a")...) {
			h := locktest.Acquire(t, t.Context(), l)
			assert.Equal(t, 2, s.have(t, "a"), kind)
			assert.Equal(t, "a", l.Name(), kind)
			assert.Zero(t, h.Token(), kind)
			locktest.Unlock(t, h)
			assert.Zero(t, s.have(t, "a"), kind)
		}
	})
}

func TestNamesAreJoined(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		names := []rlock.Locker{c.GetLock("c"), c.GetLock("a"), c.GetLock("b")}
		assert.Equal(t, "a,b,c", c.GetMultiLock(names...).Name(), "in the order in which they are taken")
		assert.Equal(t, "c,a,b", c.GetRedLock(names...).Name(), "as they were given")
	})
}
