package rsemaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// semaphoreVectors are names, and what the wire format derives from them.
var semaphoreVectors = map[string]struct{ prefix, name, key, channel, ops string }{
	"plain":          {"", "s", "s", "redisson_sc:{s}", "redlatch_ops:{s}:*"},
	"tag":            {"", "{shop}:s", "{shop}:s", "redisson_sc:{shop}:s", "redlatch_ops:{shop}:s:*"},
	"prefix":         {"app:", "s", "app:s", "redisson_sc:{app:s}", "redlatch_ops:{app:s}:*"},
	"prefix and tag": {"app:", "{s}", "app:{s}", "redisson_sc:app:{s}", "redlatch_ops:app:{s}:*"},
}

// listenTo returns what is published on a channel so far.
func listenTo(t *testing.T, b *locktest.Bubble, channel string) func() []string {
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

func TestSemaphoreVectors(t *testing.T) {
	for name, v := range semaphoreVectors {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetSemaphore(v.name)
				heard := listenTo(t, b, v.channel)
				give(t, s, 3)
				assert.Equal(t, []string{"3"}, heard(), "set 3") // the server waits for who does not listen
				take(t, s, 2)
				release(t, s, 2)
				assert.Equal(t, []string{"3", "3"}, heard(), "acquire 2, release 2")
				require.NoError(t, s.AddPermits(t.Context(), 2))
				assert.Equal(t, []string{"3", "3", "5"}, heard(), "add 2")
				require.NoError(t, s.AddPermits(t.Context(), -9))
				release(t, s, 1)
				_, err := s.Drain(t.Context())
				require.NoError(t, err)
				assert.Equal(t, []string{"3", "3", "5"}, heard(), "nothing below 1 is ever published")
				assert.Equal(t, -3, counter(t, b.Redis, v.key))
				ops, err := b.Redis.Keys(t.Context(), v.ops).Result()
				require.NoError(t, err)
				require.Len(t, ops, 1, "one record for a client")
				assert.InDelta(t, time.Hour, b.TTL(t, ops[0]), float64(time.Minute))
				assert.ElementsMatch(t, append(ops, v.key), b.Keys(t))
			})
		})
	}
}

func TestSemaphoreHasTheTTLThatJavaGives(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetSemaphore("s")
		limited := func() {
			require.NoError(t, b.Redis.Set(t.Context(), "s", 5, time.Hour).Err())
		}
		limited()
		take(t, s, 2)
		release(t, s, 1)
		assert.InDelta(t, time.Hour, b.TTL(t, "s"), float64(time.Minute), "taking and releasing keep it")
		require.NoError(t, s.AddPermits(t.Context(), 1))
		assert.EqualValues(t, -1, b.TTL(t, "s"), "adding ends it")
		limited()
		_, err := s.Drain(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, -1, b.TTL(t, "s"), "draining ends it")
	})
}

func TestSemaphoreWakeUpByAnotherProgram(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetSemaphore("s")
		waiting := beginTake(t.Context(), s, 2)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_sc:{s}", "word").Err())
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_sc:{s}", "0").Err())
		start := time.Now()
		require.NoError(t, b.Redis.IncrBy(t.Context(), "s", 3).Err())
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_sc:{s}", "3").Err())
		require.NoError(t, ended(t, waiting))
		assert.Less(t, time.Since(start), semaphoreMoment)
		requireThere(t, s, 1)
	})
}

func TestSemaphorePairCostsTwoCommands(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 3)
		for range 5 {
			before := len(p.Sent())
			take(t, s, 1)
			release(t, s, 1)
			assert.Equal(t, []string{"evalsha", "evalsha"}, p.Sent()[before:])
		}
		take(t, s, 3)
		waiting := beginTake(t.Context(), s, 1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		before := p.Scripts()
		require.False(t, tried(t, s, 1), "others of this client wait")
		assert.Equal(t, before, p.Scripts())
		release(t, s, 1)
		require.NoError(t, ended(t, waiting))
		assert.LessOrEqual(t, p.Scripts()-before, 2, "who waits stands right behind the release")
	})
}

// F21
func TestSemaphoreWaitersCostLittle(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 1)
		take(t, s, 1)
		const waiters = 500
		served := make(chan error, waiters) // room for all
		for range waiters {
			go func() { served <- s.Acquire(t.Context(), 1) }()
		}
		time.Sleep(2 * time.Second)
		before := p.Scripts()
		time.Sleep(10 * time.Second)
		asked := p.Scripts() - before
		assert.GreaterOrEqual(t, asked, 8, "about one a second")
		assert.LessOrEqual(t, asked, 14, "about one a second")
		before = p.Scripts()
		for range waiters {
			release(t, s, 1)
			require.NoError(t, ended(t, served))
		}
		assert.LessOrEqual(t, p.Scripts()-before, 3*waiters)
		requireThere(t, s, 0)
	})
}

func TestSemaphoreNumberThatLuaCannotCountIsRefused(t *testing.T) {
	for where, in := range map[string]locktest.Place{"in memory": locktest.InMemory, "on a server": locktest.OnServer} {
		t.Run(where, func(t *testing.T) {
			in(t, func(t *testing.T, server *locktest.Server) {
				p := &semaphorePlace{Server: server, name: "semaphoretest:huge"}
				s := p.semaphore(t)
				for _, huge := range []string{"9223372036854775807", "9007199254740993", "-9223372036854775808", "100000000000000"} {
					require.NoError(t, p.Redis.Set(t.Context(), p.name, huge, 0).Err())
					for verb, call := range semaphoreCalls {
						require.ErrorIs(t, call(t.Context(), s), redlatch.ErrWrongType, "%s of %s", verb, huge)
					}
					require.Equal(t, huge, p.Redis.Get(t.Context(), p.name).Val())
				}
				require.NoError(t, p.Redis.Set(t.Context(), p.name, "99999999999998", 0).Err())
				release(t, s, 1)
				require.Equal(t, 99999999999999, counter(t, p.Redis, p.name))
				require.NoError(t, p.Redis.Del(t.Context(), p.name).Err())
			})
		})
	}
}
