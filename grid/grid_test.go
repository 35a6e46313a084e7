package grid_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestConcurrentCallsShareRoundTrips(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		m, n := rmap.New[int, int](p.Client, "m"), ratomic.NewInt64(p.Client, "n")
		trips, sent := p.Trips(), p.Scripts()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { assert.NoError(t, m.Set(t.Context(), i, i)) })
			all.Go(func() { _, err := n.Add(t.Context(), 1); assert.NoError(t, err) })
		}
		all.Wait()
		assert.Equal(t, 200, p.Scripts()-sent)
		assert.Less(t, p.Trips()-trips, 50)
		v, err := n.Load(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 100, v)
	})
}

func TestCallsEndWithTheirContextOrTheCallTimeout(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(2*time.Second))
		n := ratomic.NewInt64(p.Client, "n")
		require.NoError(t, n.Store(t.Context(), 1))
		p.Blackhole(true)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := n.Load(short)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)

		began = time.Now()
		_, err = n.Load(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		_, err = n.Add(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		assert.LessOrEqual(t, time.Since(began), 5*time.Second)

		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, n.Store(cancelled, 2), context.Canceled)
		p.Blackhole(false)
		v, err := n.Load(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, v)
	})
}

func TestCallsThatWereNotRunAreRepeated(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		n := ratomic.NewInt64(p.Client, "n")
		require.NoError(t, n.Store(t.Context(), 1))
		var refused atomic.Int32
		b.Mini.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
			if cmd != "INCRBY" || refused.Add(1) > 3 {
				return false
			}
			peer.WriteError("LOADING Redis is loading the dataset in memory")
			return true
		})
		sum, err := n.Add(t.Context(), 1)
		require.NoError(t, err)
		assert.EqualValues(t, 2, sum)
		assert.EqualValues(t, 4, refused.Load())
	})
}

func TestPrefixesAndHashTagsAreKept(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithNamePrefix("app:"))
		v := rbucket.New[string](p.Client, "{shop}:v")
		require.NoError(t, v.Set(t.Context(), "x", rbucket.WithFence(1)))
		assert.Equal(t, "{shop}:v", v.Name())
		assert.Equal(t, "app:{shop}:v", v.Key())
		assert.ElementsMatch(t, []string{"app:{shop}:v", "redlatch_fence:app:{shop}:v"}, b.Keys(t))
	})
}

func TestFencesLastAsLongAsTokens(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithTokenTTL(time.Hour))
		v := rbucket.New[string](p.Client, "v")
		require.NoError(t, v.Set(t.Context(), "x", rbucket.WithFence(2)))
		require.ErrorIs(t, v.Set(t.Context(), "y", rbucket.WithFence(1)), redlatch.ErrFenced)
		assert.Equal(t, time.Hour, b.TTL(t, "redlatch_fence:{v}"))
	})
}

// A cluster whose client may read from replicas: changes, iteration and updates go to masters.
func TestObjectsWorkOnACluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	for _, readOnly := range []bool{false, true} {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadOnly: readOnly})
		client, err := redlatch.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, client.Close())
			assert.NoError(t, rdb.Close())
		})
		ctx := t.Context()
		for _, name := range strings.Fields("a b c d e f") {
			m := rmap.New[int, int](client, "map "+name)
			_, err := m.Delete(ctx)
			require.NoError(t, err)
			require.NoError(t, m.Set(ctx, 1, 1, rmap.WithFence(7)))
			require.ErrorIs(t, m.Set(ctx, 1, 1, rmap.WithFence(6)), redlatch.ErrFenced)
			require.NoError(t, m.SetAll(ctx, map[int]int{2: 2, 3: 3}))
			_, err = m.Update(ctx, 2, func(v int, _ bool) (int, error) { return v * 10, nil })
			require.NoError(t, err)
			sum := 0
			for e, err := range m.All(ctx) {
				require.NoError(t, err)
				sum += e.Value
			}
			assert.Equal(t, 24, sum)
			v, ok, err := m.Get(ctx, 2)
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, 20, v)

			from, to := rset.New[string](client, "{"+name+"}:from"), rset.New[string](client, "{"+name+"}:to")
			_, err = from.Add(ctx, "x")
			require.NoError(t, err)
			ok, err = from.MoveTo(ctx, to, "x")
			require.NoError(t, err)
			assert.True(t, ok)
		}
	}
}

func TestDataDoesNotWaitForReplicas(t *testing.T) {
	server := redistest.Start(t) // without a replica
	c, err := redlatch.New(server.Client(t), redlatch.WithReplicas(1, 50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	require.NoError(t, rmap.New[string, int](c, "m", rmap.WithNear(10)).Set(t.Context(), "a", 1))
	_, err = ratomic.NewInt64(c, "n").Add(t.Context(), 1)
	require.NoError(t, err)
	users := rcache.New(c, "users", func(context.Context, string) (int, error) { return 1, nil })
	require.NoError(t, users.Set(t.Context(), "a", 1))
	_, err = users.Get(t.Context(), "b")
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed, "the claim of a load does")
}
