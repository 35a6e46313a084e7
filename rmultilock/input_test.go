package rmultilock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
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
		sibling, err := redlatch.New(c.Redis)
		require.NoError(t, err)
		defer func() { assert.NoError(t, sibling.Close()) }()
		for what, locks := range map[string][]rlock.Locker{
			"none":                       {},
			"nil":                        {a, nil},
			"the same object twice":      {a, z, a},
			"the same name twice":        {a, c.GetLock("a")},
			"plain and fenced":           {a, c.GetFencedLock("a")},
			"a writer twice":             {c.GetReadWriteLock("a"), c.GetReadWriteLock("a")},
			"a writer and its readers":   {c.GetReadWriteLock("a"), c.GetReadWriteLock("a").RLocker()},
			"readers twice":              {c.GetReadWriteLock("a").RLocker(), c.GetReadWriteLock("a").RLocker()},
			"plain and fair":             {a, c.GetFairLock("a")},
			"fenced and writer":          {c.GetFencedLock("a"), z, c.GetReadWriteLock("a")},
			"fair and readers":           {c.GetFairLock("a"), c.GetReadWriteLock("a").RLocker()},
			"one of another client":      {a, sibling.GetFairLock("a")},
			"one in a user's type twice": {a, wrapped{a, ""}},
			"a multi-lock twice":         {c.GetMultiLock(a, z), c.GetMultiLock(z, a)},
			"one in a multi-lock":        {a, c.GetMultiLock(z, c.GetFairLock("a"))},
			"one beside a multi-lock":    {c.GetMultiLock(z, c.GetFairLock("a")), a},
			"one in a RedLock":           {c.GetRedLock(a, z, c.GetLock("m")), c.GetReadWriteLock("a")},
			"one in two RedLocks":        {c.GetRedLock(a, z), c.GetRedLock(c.GetLock("m"), c.GetFairLock("a"))},
			"one deep in a multi-lock":   {c.GetMultiLock(c.GetMultiLock(z), c.GetRedLock(c.GetMultiLock(c.GetFairLock("a")))), a},
			"a bad name":                 {a, c.GetLock("")},
			"a bad multi-lock":           {a, c.GetMultiLock()},
			"a multi-lock of a bad one":  {c.GetMultiLock(c.GetLock("a}"))},
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

func TestErrorTexts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithWatchdogTimeout(lease))
		ctx := t.Context()
		a, z := p.GetLock("a"), p.GetLock("z")
		multi, red := p.GetMultiLock(z, a), p.GetRedLock(z, a)
		h := locktest.Acquire(t, ctx, multi)
		got := map[string]error{
			`rmultilock: lock "": invalid argument: no locks given`:                 second(p.GetMultiLock().Lock(ctx)),
			`rmultilock: try lock "a": invalid argument: lock 2 is nil`:             second(p.GetRedLock(a, nil).TryLock(ctx)),
			`rmultilock: lock "a,z": invalid argument: the lock "a" is given twice`: second(p.GetMultiLock(z, a, a).Lock(ctx)),
			`rmultilock: do "z,a": invalid argument: the lock "a" is given twice`:   p.GetRedLock(z, a, p.GetFairLock("a")).Do(ctx, nothing),
			`rmultilock: lock "a,a,z": invalid argument: the lock "a" is given twice`: second(
				p.GetMultiLock(p.GetMultiLock(a, z), p.GetFairLock("a")).Lock(ctx)),
			`rmultilock: lock ",z": invalid argument: the name is empty`:               second(p.GetMultiLock(z, p.GetLock("")).Lock(ctx)),
			`rmultilock: lock "": invalid argument: the name is empty`:                 second(p.GetRedLock(p.GetLock("")).Lock(ctx)),
			`rmultilock: lock "": invalid argument: the lock was not made by a client`: second(p.GetMultiLock(&rlock.Lock{}).Lock(ctx)),
			`rmultilock: do "a,z": invalid argument: fn is nil`:                        multi.Do(ctx, nil),
			`rmultilock: lock "z,a": invalid argument: an option is nil`:               second(red.Lock(ctx, nil)),
			`rmultilock: lock "z,a": invalid argument: lease 3ms is below 10ms`:        second(red.Lock(ctx, rlock.WithFixedLease(3*time.Millisecond))),
			`rmultilock: extend "a,z": invalid argument: lease 0s is below 10ms`:       h.Extend(ctx, 0),
			`rmultilock: try lock "a,z": lock not acquired`:                            second(multi.TryLock(ctx)),
			`rmultilock: lock "z,a": lock not acquired`:                                second(red.Lock(ctx, rlock.WithWait(time.Second))),
			`rmultilock: lock "a,z": lock already held by this context`:                second(multi.Lock(h.Context(), rlock.WithoutReentry())),
		}
		locktest.Unlock(t, h)
		got[`rmultilock: unlock "a,z": lock not held`] = h.Unlock(ctx)
		got[`rmultilock: extend "a,z": lock not held`] = h.Extend(ctx, time.Minute)
		got[`rmultilock: lock "a,z": ended by its holder`] = context.Cause(h.Context())
		h = locktest.Acquire(t, ctx, red)
		b.Delete(t, "a")
		<-h.Context().Done()
		got[`rmultilock: lock "z,a": lock lost: rlock: lock "a": lock lost: `+
			`Redis has it no longer: its lease ended there, or it was taken away`] = context.Cause(h.Context())
		got[`rmultilock: extend "z,a": lock lost`] = h.Extend(ctx, time.Minute)
		h = locktest.Acquire(t, ctx, multi, rlock.WithFixedLease(time.Second))
		<-h.Context().Done()
		assert.Regexp(t, `^rmultilock: lock "a,z": lock lost: rlock: lock "[az]": lock lost: the lease ended$`, context.Cause(h.Context()).Error())
		h = locktest.Acquire(t, ctx, multi)
		require.NoError(t, p.Close())
		assert.Regexp(t, `^rmultilock: lock "a,z": client closed: rlock: lock "[az]": client closed$`, context.Cause(h.Context()).Error())
		got[`rmultilock: try lock "z,a": client closed`] = second(red.TryLock(ctx))
		for want, err := range got {
			assert.EqualError(t, err, want)
		}
	})
}

func nothing(context.Context) error { return nil }

func second[T any](_ T, err error) error { return err }
