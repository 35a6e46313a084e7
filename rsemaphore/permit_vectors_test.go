package rsemaphore_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// permitVectors are names, and what the wire format derives from them.
var permitVectors = map[string]struct{ prefix, name, key, out, channel string }{
	"plain":          {"", "n", "n", "{n}:timeout", "redisson_sc:{n}"},
	"tag":            {"", "{shop}:slots", "{shop}:slots", "{shop}:slots:timeout", "redisson_sc:{shop}:slots"},
	"prefix":         {"app:", "n", "app:n", "{app:n}:timeout", "redisson_sc:{app:n}"},
	"prefix and tag": {"app:", "{n}", "app:{n}", "app:{n}:timeout", "redisson_sc:app:{n}"},
}

const (
	forever  = 922337203685477    // Java's score of a lease without end
	javasOne = "0123456789abcdef" // ids of a Java client, raw
	javasTwo = "\x00\xff\xfe\r\n\x80{}jklmnop"
)

// listenToPermits returns what has been published on a channel since the last call.
func listenToPermits(t *testing.T, b *locktest.Bubble, channel string) func() []string {
	t.Helper()
	sub := b.Redis.Subscribe(t.Context(), channel)
	t.Cleanup(func() { assert.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	var mu sync.Mutex // guards heard
	var heard []string
	go func() { // ends when the subscription is closed; the server waits for whoever does not read
		for {
			m, err := sub.ReceiveMessage(context.WithoutCancel(t.Context()))
			if err != nil {
				return
			}
			mu.Lock()
			heard = append(heard, m.Payload)
			mu.Unlock()
		}
	}()
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		since := heard
		heard = nil
		return since
	}
}

func TestPermitVectorKeysAndMessages(t *testing.T) {
	for name, v := range permitVectors {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := b.Peer(t, redlatch.WithNamePrefix(v.prefix)).GetPermitSemaphore(v.name)
				heard := listenToPermits(t, b, v.channel)
				stored := func() string { return b.Redis.Get(t.Context(), v.key).Val() }

				givePermits(t, s, 2)
				assert.Equal(t, "2", stored())
				assert.Equal(t, time.Duration(-1), b.TTL(t, v.key))
				assert.Equal(t, []string{"2"}, heard(), "setting publishes the number")

				start := time.Now()
				one := takePermit(t, s)
				assert.Equal(t, "1", stored())
				assert.Equal(t, []redis.Z{{Member: rawID(t, one), Score: float64(start.UnixMilli() + 30_000)}},
					b.Redis.ZRangeWithScores(t.Context(), v.out, 0, -1).Val(), "the raw id, and the end of its lease")
				assert.Empty(t, heard())

				two := takePermit(t, s)
				releasePermits(t, one)
				releasePermits(t, two)
				assert.Equal(t, []string{"1", "2"}, heard(), "a release publishes what is available")
				assert.Zero(t, b.Redis.Exists(t.Context(), v.out).Val())

				require.NoError(t, s.AddPermits(t.Context(), 3))
				assert.Equal(t, []string{"3"}, heard(), "adding publishes how many were added")
				require.NoError(t, s.AddPermits(t.Context(), -1))
				assert.Empty(t, heard())
				require.NoError(t, s.SetPermits(t.Context(), 4))
				assert.Empty(t, heard(), "there are four already")
				require.NoError(t, s.SetPermits(t.Context(), 6))
				assert.Equal(t, []string{"6"}, heard(), "setting publishes the number")
				assert.Equal(t, "6", stored())
			})
		})
	}
}

// The vector of section 20: with one of two permits out for ever and one until t+5000, a third is refused with that time;
// after it the third gets the permit, and `1` is published.
func TestPermitVectorExpiry(t *testing.T) {
	redistest.Long(t)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetPermitSemaphore("n")
		givePermits(t, s, 2)
		start := time.Now()
		javaHolds(t, b, map[string]int64{javasOne: forever, javasTwo: start.UnixMilli() + 5000})
		heard := listenToPermits(t, b, "redisson_sc:{n}")

		permit := takePermit(t, s)
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(5*time.Millisecond), "it asks again when the lease ends")
		assert.Equal(t, []string{"1"}, heard())
		assert.Equal(t, "0", b.Redis.Get(t.Context(), "n").Val())
		releasePermits(t, permit)
		assert.Equal(t, []string{"1"}, heard())

		time.Sleep(100 * time.Hour)
		assert.Equal(t, []redis.Z{{Member: javasOne, Score: forever}}, b.Redis.ZRangeWithScores(t.Context(), "{n}:timeout", 0, -1).Val(),
			"what is out for ever stays out")
		requireAvailable(t, s, 1)
	})
}

// javaHolds has a Java client hold permits: raw id -> score.
func javaHolds(t *testing.T, b *locktest.Bubble, permits map[string]int64) {
	t.Helper()
	for id, score := range permits {
		require.NoError(t, b.Redis.ZAdd(t.Context(), "{n}:timeout", redis.Z{Member: id, Score: float64(score)}).Err())
		require.NoError(t, b.Redis.Decr(t.Context(), "n").Err())
	}
}

func TestPermitVectorWaiterWithoutEndToWaitFor(t *testing.T) {
	redistest.Long(t)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetPermitSemaphore("n")
		givePermits(t, s, 1)
		javaHolds(t, b, map[string]int64{javasOne: forever})
		waiting := beginPermits(t.Context(), s, 1)
		time.Sleep(time.Hour)
		require.NoError(t, b.Redis.ZRem(t.Context(), "{n}:timeout", javasOne).Err())
		require.NoError(t, b.Redis.Incr(t.Context(), "n").Err())
		start := time.Now()
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_sc:{n}", "1").Err())
		releasePermits(t, nextPermits(t, waiting)...)
		assert.Less(t, time.Since(start), 10*time.Millisecond, "Java's message wakes it")
	})
}

// A negative number on the channel is an exception in Java.
func TestPermitVectorNoMessageBelowOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetPermitSemaphore("n")
		givePermits(t, s, 4)
		held := takePermits(t, s, 4, rsemaphore.WithFixedLease(time.Second))
		require.NoError(t, s.SetPermits(t.Context(), 2))
		heard := listenToPermits(t, b, "redisson_sc:{n}")
		releasePermits(t, held[:2]...)
		assert.Empty(t, heard(), "none is available even so")
		assert.Equal(t, "0", b.Redis.Get(t.Context(), "n").Val())
		time.Sleep(time.Second)
		requireAvailable(t, s, 2)
		for _, payload := range heard() {
			n, err := strconv.Atoi(payload)
			require.NoError(t, err)
			assert.Positive(t, n)
		}
	})
}

// An expiry that Java or an operator has set on the semaphore is set on the permits too, and shrinking keeps it.
func TestPermitVectorExpiringSemaphore(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetPermitSemaphore("n")
		givePermits(t, s, 2)
		require.NoError(t, b.Redis.PExpire(t.Context(), "n", time.Minute).Err())
		permit := takePermit(t, s)
		assert.Equal(t, time.Minute, b.TTL(t, "{n}:timeout"))
		require.NoError(t, s.SetPermits(t.Context(), 3))
		assert.Equal(t, time.Minute, b.TTL(t, "n"))
		require.NoError(t, s.AddPermits(t.Context(), 1))
		assert.Equal(t, time.Duration(-1), b.TTL(t, "n"), "as Java does")
		releasePermits(t, permit)
	})
}

// Far more permits than Lua can unpack come back in one step.
func TestPermitsExpireByTheThousand(t *testing.T) {
	locktest.OnServer(t, func(t *testing.T, srv *locktest.Server) {
		p := &permitPlace{Server: srv, name: "permits:thousands"}
		t.Cleanup(func() { assert.NoError(t, p.Redis.Del(context.Background(), p.name, "{"+p.name+"}:timeout").Err()) })
		const n = 25_000
		s := p.permits(t, n)
		pipe := p.Redis.Pipeline()
		for i := range n {
			id := "0123456789" + strconv.Itoa(100_000+i)
			pipe.ZAdd(t.Context(), "{"+p.name+"}:timeout", redis.Z{Member: id, Score: 1})
		}
		pipe.DecrBy(t.Context(), p.name, n)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		requireAvailable(t, s, n)
		require.NoError(t, permitsAre(t.Context(), p.Redis, p.name, 0, n), "a look changes nothing")
		releasePermits(t, takePermits(t, s, 7)...)
		require.NoError(t, permitsAre(t.Context(), p.Redis, p.name, 10_000, n-10_000), "a call takes back so many at most")
		for range 2 {
			releasePermits(t, takePermit(t, s))
		}
		require.NoError(t, permitsAre(t.Context(), p.Redis, p.name, n, 0))
	})
}
