package rrwlock_test

import (
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

// vector is a name, and what the wire format derives from it.
type vector struct{ prefix, name, key, level, channel, writers string }

var vectors = map[string]vector{
	"plain":             {"", "cfg", "cfg", "{cfg}:%s:rwlock_timeout:%d", "redisson_rwlock:{cfg}", "redlatch_rwlock_writers:{cfg}"},
	"tag":               {"", "{a}cfg", "{a}cfg", "{a}cfg:%s:rwlock_timeout:%d", "redisson_rwlock:{a}cfg", "redlatch_rwlock_writers:{a}cfg"},
	"prefix":            {"app:", "n", "app:n", "{app:n}:%s:rwlock_timeout:%d", "redisson_rwlock:{app:n}", "redlatch_rwlock_writers:{app:n}"},
	"prefix with a tag": {"{app}:", "n", "{app}:n", "{app}:n:%s:rwlock_timeout:%d", "redisson_rwlock:{app}:n", "redlatch_rwlock_writers:{app}:n"},
}

func (v vector) levels(owner string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(v.level, owner, i+1))
	}
	return names
}

func eachVector(t *testing.T, test func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer)) {
	t.Helper()
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				test(t, b, v, b.Peer(t, redlatch.WithNamePrefix(v.prefix)))
			})
		})
	}
}

func TestVectorReaders(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		heard := listen(t, b, v.channel)
		l := p.GetReadWriteLock(v.name)
		first := locktest.Acquire(t, t.Context(), l.RLocker())
		second := locktest.Acquire(t, first.Context(), l.RLocker())
		other := locktest.Acquire(t, t.Context(), b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetReadWriteLock(v.name).RLocker())
		a, z := first.Owner(), other.Owner()
		assert.Equal(t, map[string]string{"mode": "read", a: "2", z: "1"}, b.Hash(t, v.key), "A reads twice, B reads")
		assert.ElementsMatch(t, append(append(v.levels(a, 2), v.levels(z, 1)...), v.key), b.Keys(t))
		for _, key := range b.Keys(t) {
			assert.Equal(t, 30*time.Second, b.TTL(t, key), key)
		}
		assert.Equal(t, "1", b.Redis.Get(t.Context(), fmt.Sprintf(v.level, a, 1)).Val())

		locktest.Unlock(t, second)
		assert.Equal(t, map[string]string{"mode": "read", a: "1", z: "1"}, b.Hash(t, v.key))
		assert.ElementsMatch(t, append(append(v.levels(a, 1), v.levels(z, 1)...), v.key), b.Keys(t))
		locktest.Unlock(t, first)
		assert.Equal(t, map[string]string{"mode": "read", z: "1"}, b.Hash(t, v.key))
		assert.Empty(t, heard(), "no message before the last reader left")
		locktest.Unlock(t, other)
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, []string{"0"}, heard())
		require.ErrorIs(t, first.Unlock(t.Context()), rlock.ErrNotHeld)
		assert.Equal(t, []string{"0"}, heard())
	})
}

func TestVectorWriter(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		heard := listen(t, b, v.channel)
		l := p.GetReadWriteLock(v.name)
		first := locktest.Acquire(t, t.Context(), l)
		second := locktest.Acquire(t, first.Context(), l)
		assert.Equal(t, map[string]string{"mode": "write", first.Owner() + ":write": "2"}, b.Hash(t, v.key), "A writes twice")
		assert.Equal(t, []string{v.key}, b.Keys(t))
		assert.Equal(t, 30*time.Second, b.TTL(t, v.key), "the levels share one lease")
		locktest.Refused(t, b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetReadWriteLock(v.name).RLocker())
		locktest.Refused(t, b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetReadWriteLock(v.name))
		assert.Equal(t, []string{v.key}, b.Keys(t), "a try leaves nothing")
		locktest.Unlock(t, first)
		assert.Equal(t, map[string]string{"mode": "write", first.Owner() + ":write": "1"}, b.Hash(t, v.key))
		assert.Empty(t, heard())
		locktest.Unlock(t, second)
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, []string{"1"}, heard())
	})
}

func TestVectorDowngrade(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		heard := listen(t, b, v.channel)
		l := p.GetReadWriteLock(v.name)
		w := locktest.Acquire(t, t.Context(), l)
		r := locktest.Acquire(t, w.Context(), l.RLocker())
		id := w.Owner()
		assert.Equal(t, id, r.Owner())
		assert.Equal(t, map[string]string{"mode": "write", id + ":write": "1", id: "1"}, b.Hash(t, v.key))
		again := locktest.Acquire(t, w.Context(), l.RLocker())
		assert.Equal(t, map[string]string{"mode": "write", id + ":write": "1", id: "2"}, b.Hash(t, v.key))
		assert.ElementsMatch(t, append(v.levels(id, 2), v.key), b.Keys(t))
		locktest.Unlock(t, again)
		locktest.Unlock(t, w)
		assert.Equal(t, map[string]string{"mode": "read", id: "1"}, b.Hash(t, v.key), "A writes, reads, then unlocks the write")
		assert.Equal(t, []string{"1"}, heard(), "as for the release of a writer; Redisson announces nothing")
		locktest.Unlock(t, r)
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, []string{"1", "0"}, heard())
	})
}

func TestVectorReaderLeavesBeforeTheWriter(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		heard := listen(t, b, v.channel)
		l := p.GetReadWriteLock(v.name)
		w := locktest.Acquire(t, t.Context(), l)
		for range 2 {
			r := locktest.Acquire(t, w.Context(), l.RLocker())
			locktest.Unlock(t, r)
			assert.Equal(t, map[string]string{"mode": "write", w.Owner() + ":write": "1"}, b.Hash(t, v.key))
			assert.Equal(t, []string{v.key}, b.Keys(t))
		}
		locktest.Live(t, w.Context())
		assert.Empty(t, heard())
		locktest.Unlock(t, w)
		assert.Equal(t, []string{"1"}, heard())
		assert.Empty(t, b.Keys(t))
	})
}

func TestVectorWaitingWriter(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		other := b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetReadWriteLock(v.name)
		r := locktest.Acquire(t, t.Context(), p.GetReadWriteLock(v.name).RLocker())
		hash := b.Hash(t, v.key)
		waiting := begin(t, t.Context(), other)
		assert.Equal(t, hash, b.Hash(t, v.key), "the lock's hash knows nothing of it")
		marks, err := b.Redis.ZRangeWithScores(t.Context(), v.writers, 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, marks, 1)
		assert.InDelta(t, time.Now().UnixMilli(), marks[0].Score, 3000)
		assert.Positive(t, b.TTL(t, v.writers))
		time.Sleep(10 * time.Second)
		locktest.Refused(t, p.GetReadWriteLock(v.name).RLocker())
		locktest.Unlock(t, r)
		w := locktest.Next(t, waiting)
		assert.Equal(t, marks[0].Member, w.Owner())
		assert.Equal(t, []string{v.key}, b.Keys(t), "no mark is left")
		locktest.Unlock(t, w)
	})
}

func TestVectorForceUnlock(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		l := p.GetReadWriteLock(v.name)
		heard := listen(t, b, v.channel)
		freed, err := l.ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.False(t, freed)
		assert.Empty(t, heard())
		for payload, side := range []rlock.Locker{l.RLocker(), l} {
			h := locktest.Acquire(t, t.Context(), side)
			freed, err = l.ForceUnlock(t.Context())
			require.NoError(t, err)
			assert.True(t, freed)
			synctest.Wait()
			locktest.Ended(t, h.Context(), rlock.ErrLost)
			assert.Empty(t, b.Hash(t, v.key))
			assert.Equal(t, []string{"0", "1"}[:payload+1], heard())
		}
	})
}

// foreign is a Java client's reader or writer.
const foreign = "8743c9c0-0795-4907-87fd-6c719a6b4586:57"

func TestVectorForeignHolders(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		l, ctx := p.GetReadWriteLock(v.name), t.Context()
		set := func(ttl time.Duration, fields ...any) {
			require.NoError(t, b.Redis.HSet(ctx, v.key, fields...).Err())
			require.NoError(t, b.Redis.PExpire(ctx, v.key, ttl).Err())
		}
		set(5*time.Second, "mode", "read", foreign, 2)
		for i, key := range v.levels(foreign, 2) {
			require.NoError(t, b.Redis.Set(ctx, key, 1, time.Duration(1+i)*time.Second).Err())
		}
		locktest.Refused(t, l)
		start := time.Now()
		locktest.Free(t, l.RLocker())
		assert.Equal(t, "2", b.Hash(t, v.key)[foreign], "our release leaves it alone")
		w := locktest.Acquire(t, ctx, l)
		assert.InDelta(t, 2*time.Second, time.Since(start), float64(moment), "its last level, not the hash, decides")
		locktest.Unlock(t, w)

		set(5*time.Second, "mode", "write", foreign+":write", 1)
		start = time.Now()
		before := b.Hash(t, v.key)
		locktest.Refused(t, l)
		locktest.Refused(t, l.RLocker())
		assert.Equal(t, before, b.Hash(t, v.key))
		locktest.Unlock(t, locktest.Acquire(t, ctx, l.RLocker()))
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(moment))
	})
}

func TestVectorWakeUpByAnotherProgram(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		l := p.GetReadWriteLock(v.name)
		for _, tc := range []struct {
			side    rlock.Locker
			payload string
		}{{l, "0"}, {l, "1"}, {l.RLocker(), "1"}} {
			require.NoError(t, b.Redis.HSet(t.Context(), v.key, "mode", "write", foreign+":write", 1).Err())
			waiting := begin(t, t.Context(), tc.side)
			start := time.Now()
			require.NoError(t, b.Redis.Publish(t.Context(), v.channel, "7").Err()) // no wake-up: ignored
			b.Delete(t, v.key)
			synctest.Wait()
			require.NoError(t, b.Redis.Publish(t.Context(), v.channel, tc.payload).Err())
			h := locktest.Next(t, waiting)
			assert.Less(t, time.Since(start), moment)
			locktest.Unlock(t, h)
		}
	})
}
