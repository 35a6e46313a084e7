package rlock_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestVectorsOnServer(t *testing.T) {
	server := serve(t)
	rdb := server.Client(t)
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			c := clientAt(t, server.Addr(), redlatch.WithNamePrefix(v.prefix))
			sub := rdb.Subscribe(t.Context(), v.channel)
			defer sub.Close() // it has said what it had to say
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			for token, l := range map[string]*rlock.Lock{"": c.GetLock(v.name), v.token: c.GetFencedLock(v.name)} {
				outer := locktest.Acquire(t, t.Context(), l)
				inner := locktest.Acquire(t, outer.Context(), l)
				assert.Equal(t, map[string]string{outer.Owner(): "2"}, rdb.HGetAll(t.Context(), v.key).Val())
				left, err := rdb.PTTL(t.Context(), v.key).Result()
				require.NoError(t, err)
				assert.InDelta(t, 30*time.Second, left, float64(15*time.Second), "the lease, renewed")
				if token != "" {
					assert.Equal(t, strconv.FormatInt(outer.Token(), 10), rdb.Get(t.Context(), token).Val())
				}
				locktest.Unlock(t, inner)
				assert.Equal(t, map[string]string{outer.Owner(): "1"}, rdb.HGetAll(t.Context(), v.key).Val())
				locktest.Unlock(t, outer)
				heard, err := sub.ReceiveMessage(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "0", heard.Payload)
				assert.Zero(t, rdb.Exists(t.Context(), v.key).Val())
			}
			require.NoError(t, rdb.Del(t.Context(), v.token).Err())
		})
	}
}

func TestVectorTakenByAnotherProgramOnServer(t *testing.T) {
	server := serve(t)
	rdb := server.Client(t)
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			l := clientAt(t, server.Addr(), redlatch.WithNamePrefix(v.prefix)).GetLock(v.name)
			require.NoError(t, rdb.HSet(t.Context(), v.key, "285475da-9152-4c83-822a-67ee2f116a79:52", 1).Err())
			require.NoError(t, rdb.PExpire(t.Context(), v.key, time.Minute).Err())
			_, err := l.TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			waiting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) })
			redistest.AwaitSubscribers(t, rdb, v.channel, 1)
			_, err = rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Del(t.Context(), v.key)
				p.Publish(t.Context(), v.channel, "0")
				return nil
			})
			require.NoError(t, err)
			locktest.Unlock(t, locktest.Next(t, waiting))
		})
	}
}
