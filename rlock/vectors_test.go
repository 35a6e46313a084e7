package rlock_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// vector is a name, and what the wire format derives from it.
type vector struct {
	prefix, name, key, channel, token string
}

var vectors = map[string]vector{
	"plain":             {"", "n", "n", "redisson_lock__channel:{n}", "redisson_lock_token:{n}"},
	"with colon":        {"", "shop:orders", "shop:orders", "redisson_lock__channel:{shop:orders}", "redisson_lock_token:{shop:orders}"},
	"tag":               {"", "{shop}:orders", "{shop}:orders", "redisson_lock__channel:{shop}:orders", "redisson_lock_token:{shop}:orders"},
	"prefix":            {"app:", "n", "app:n", "redisson_lock__channel:{app:n}", "redisson_lock_token:{app:n}"},
	"prefix and tag":    {"app:", "{n}", "app:{n}", "redisson_lock__channel:app:{n}", "redisson_lock_token:app:{n}"},
	"prefix with a tag": {"{app}:", "n", "{app}:n", "redisson_lock__channel:{app}:n", "redisson_lock_token:{app}:n"},
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

// listen returns what is published on a channel so far.
func listen(t *testing.T, b *locktest.Bubble, channel string) func() []string {
	t.Helper()
	sub := b.Redis.Subscribe(t.Context(), channel)
	t.Cleanup(func() { assert.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	var heard []string
	return func() []string {
		for {
			m, err := sub.ReceiveTimeout(t.Context(), time.Millisecond)
			if err != nil {
				return heard
			}
			if m, ok := m.(*redis.Message); ok {
				heard = append(heard, m.Payload)
			}
		}
	}
}

func TestVectorLock(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		l := p.GetLock(v.name)
		heard := listen(t, b, v.channel)
		first := locktest.Acquire(t, t.Context(), l)
		second := locktest.Acquire(t, first.Context(), l)
		assert.Equal(t, map[string]string{first.Owner(): "2"}, b.Hash(t, v.key), "A locks twice")
		assert.Equal(t, 30*time.Second, b.TTL(t, v.key))
		assert.Equal(t, []string{v.key}, b.Keys(t))

		other := b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetLock(v.name)
		locktest.Refused(t, other)
		left, err := other.TTL(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 30*time.Second, left, float64(time.Second), "B tries")

		locktest.Unlock(t, second)
		assert.Equal(t, map[string]string{first.Owner(): "1"}, b.Hash(t, v.key), "A unlocks once")
		assert.Empty(t, heard(), "no message before the last unlock")
		locktest.Unlock(t, first)
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, []string{"0"}, heard(), "A unlocks for the last time")
		require.ErrorIs(t, first.Unlock(t.Context()), rlock.ErrNotHeld)
		assert.Equal(t, []string{"0"}, heard(), "A repeats its unlock")
	})
}

func TestVectorUnlockOfAnothersLock(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		h := locktest.Acquire(t, t.Context(), p.GetLock(v.name))
		b.Delete(t, v.key)
		b.Foreign(t, v.key, time.Minute)
		heard := listen(t, b, v.channel)
		before := b.Hash(t, v.key)
		require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		assert.Equal(t, before, b.Hash(t, v.key))
		assert.Equal(t, []string{v.key}, b.Keys(t))
		assert.Empty(t, heard())
	})
}

func TestVectorForceUnlock(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		heard := listen(t, b, v.channel)
		freed, err := p.GetLock(v.name).ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.False(t, freed)
		assert.Empty(t, heard())
		b.Foreign(t, v.key, time.Minute)
		freed, err = p.GetLock(v.name).ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, freed)
		assert.Equal(t, []string{"0"}, heard())
		assert.Empty(t, b.Keys(t))
	})
}

func TestVectorWakeUpByAnotherProgram(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		for _, payload := range []string{"0", "1"} {
			b.Foreign(t, v.key, 0)
			waiting := queue(t, p.GetLock(v.name))
			start, asked := time.Now(), p.Scripts()
			require.NoError(t, b.Redis.Publish(t.Context(), v.channel, "7").Err())
			synctest.Wait()
			require.Equal(t, asked, p.Scripts(), "no wake-up: ignored")
			b.Delete(t, v.key)
			require.NoError(t, b.Redis.Publish(t.Context(), v.channel, payload).Err())
			h := locktest.Next(t, waiting)
			assert.Less(t, time.Since(start), moment)
			locktest.Unlock(t, h)
		}
	})
}

func TestVectorFencedLock(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		l := p.GetFencedLock(v.name)
		heard := listen(t, b, v.channel)
		micros := time.Now().UnixMicro()
		first := locktest.Acquire(t, t.Context(), l)
		assert.Equal(t, micros, first.Token(), "Redis's clock in microseconds")
		second := locktest.Acquire(t, first.Context(), l)
		assert.Equal(t, first.Token(), second.Token(), "a nested level carries its outermost hold's")
		assert.Equal(t, map[string]string{first.Owner(): "2"}, b.Hash(t, v.key))
		assert.Equal(t, 30*time.Second, b.TTL(t, v.key))
		stored, err := b.Redis.Get(t.Context(), v.token).Result()
		require.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(first.Token(), 10), stored)
		assert.Negative(t, b.TTL(t, v.token), "it is kept")
		_, err = b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetFencedLock(v.name).TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		locktest.Unlock(t, second)
		locktest.Unlock(t, first)
		assert.Equal(t, []string{"0"}, heard())
		assert.Equal(t, []string{v.token}, b.Keys(t))
		assert.Equal(t, stored, b.Redis.Get(t.Context(), v.token).Val(), "a try that fails draws no token")
	})
}

func TestTokensRise(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t, redlatch.WithTokenTTL(time.Minute)).GetFencedLock("n")
		const key = "redisson_lock_token:{n}"
		last := int64(0)
		draw := func(why string) int64 {
			h := locktest.Acquire(t, t.Context(), l)
			assert.Greater(t, h.Token(), last, why)
			last = h.Token()
			locktest.Unlock(t, h)
			return last
		}
		draw("first")
		first := last
		assert.Equal(t, first+1, draw("within one microsecond"))
		assert.Equal(t, time.Minute, b.TTL(t, key))
		time.Sleep(time.Minute)
		assert.Zero(t, b.TTL(t, key))
		draw("after its key expired")
		b.Delete(t, key)
		time.Sleep(time.Microsecond)
		draw("after eviction")
		require.NoError(t, b.Redis.Set(t.Context(), key, 7, 0).Err())
		time.Sleep(time.Microsecond)
		draw("after a failover to a stale replica")
		require.NoError(t, b.Redis.Set(t.Context(), key, int64(1)<<52, 0).Err())
		assert.Equal(t, int64(1)<<52+1, draw("the stored one is ahead of the clock"))
		assert.Equal(t, time.Minute, b.TTL(t, key))
		assert.Equal(t, strconv.FormatInt(last, 10), b.Redis.Get(t.Context(), key).Val(), "all digits")
	})
}

// Redisson draws a token by INCR alone.
func TestTokensRiseAlsoWhereJavaDrawsThem(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t, redlatch.WithoutPresence()).GetFencedLock("n") // which would cost three weeks of messages
		last := int64(0)
		for range 3 {
			h := locktest.Acquire(t, t.Context(), l)
			assert.Greater(t, h.Token(), last)
			locktest.Unlock(t, h)
			time.Sleep(7 * 24 * time.Hour)
			java := b.Redis.Incr(t.Context(), "redisson_lock_token:{n}").Val()
			assert.Greater(t, java, h.Token())
			last = java
		}
	})
}

func TestPlainLockHasNoToken(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock("n"))
		assert.Zero(t, h.Token())
		locktest.Refused(t, p.GetFencedLock("n"))
		locktest.Refused(t, b.Peer(t).GetFencedLock("n"))
		nested := locktest.Acquire(t, h.Context(), p.GetLock("n"))
		assert.Zero(t, nested.Token())
		locktest.Unlock(t, nested)
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

func TestLockOfAnotherProgramIsRespected(t *testing.T) {
	eachVector(t, func(t *testing.T, b *locktest.Bubble, v vector, p *locktest.Peer) {
		b.Foreign(t, v.key, 5*time.Second)
		before := b.Hash(t, v.key)
		locktest.Refused(t, p.GetLock(v.name))
		locktest.Refused(t, p.GetFencedLock(v.name))
		assert.Equal(t, before, b.Hash(t, v.key))
		start := time.Now()
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), p.GetLock(v.name)))
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(moment))
	})
}
