package rlatch_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

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

func TestVectors(t *testing.T) {
	for prefix, key := range map[string]string{"": "n", "app:": "app:n"} {
		t.Run(key, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t, redlatch.WithNamePrefix(prefix)).GetCountDownLatch("n")
				heard := listen(t, b, "redisson_countdownlatch__channel__{"+key+"}")
				set(t, l, 2)
				assert.Equal(t, []string{"1"}, heard(), "set 2") // the server waits for who does not listen
				assert.Equal(t, "2", b.Redis.Get(t.Context(), key).Val())
				assert.EqualValues(t, -1, b.TTL(t, key))
				down(t, l)
				assert.Equal(t, "1", b.Redis.Get(t.Context(), key).Val())
				down(t, l)
				assert.Equal(t, []string{"1", "0"}, heard(), "count down twice")
				assert.Zero(t, b.TTL(t, key), "the key is gone")
				down(t, l)
				require.NoError(t, l.CountDownBy(t.Context(), 7))
				assert.Equal(t, []string{"1", "0"}, heard(), "and once more")
				set(t, l, 3)
				_ = heard()
				_, err := l.Delete(t.Context())
				require.NoError(t, err)
				assert.Equal(t, []string{"1", "0", "1", "1"}, heard(), "set and deleted")
				assert.Zero(t, b.TTL(t, key))
			})
		})
	}
}

func TestWokenByAnotherProgram(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetCountDownLatch("n")
		require.NoError(t, b.Redis.Set(t.Context(), "n", 2, 0).Err())
		waiting := begin(t.Context(), l)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		down(t, l)
		require.NoError(t, b.Redis.Del(t.Context(), "n").Err())
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_countdownlatch__channel__{n}", "7").Err())
		start := time.Now()
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_countdownlatch__channel__{n}", "0").Err())
		require.NoError(t, ended(t, waiting))
		assert.Less(t, time.Since(start), moment)
	})
}

// F21
func TestWaitersReadTogether(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t)
		l := p.GetCountDownLatch("n")
		set(t, l, 1)
		before := p.Scripts()
		const waiters = 1000
		var waiting sync.WaitGroup
		for range waiters {
			waiting.Go(func() { assert.NoError(t, l.Await(t.Context())) })
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assert.Less(t, p.Scripts()-before, waiters/10, "calls that begin together share a read")
		before = p.Scripts()
		time.Sleep(10 * time.Second)
		asked := p.Scripts() - before
		assert.GreaterOrEqual(t, asked, 8, "about one a second")
		assert.LessOrEqual(t, asked, 13, "about one a second")
		before = p.Scripts()
		start := time.Now()
		down(t, other.GetCountDownLatch("n"))
		waiting.Wait()
		assert.Less(t, time.Since(start), moment)
		assert.LessOrEqual(t, p.Scripts()-before, 2)
	})
}
