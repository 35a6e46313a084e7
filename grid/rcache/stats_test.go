package rcache_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// report returns what a client says of its caches, asked by another one.
func report(t *testing.T, asker, asked *redlatch.Client) []redlatch.CacheInfo {
	t.Helper()
	r, err := asker.Ask(t.Context(), asked.ID())
	require.NoError(t, err)
	return r.Caches
}

func TestClientSaysHowItsCachesDo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := &source{value: "old"}
		p, viewer := b.Peer(t, redlatch.WithNamePrefix("app:")), b.Peer(t, redlatch.WithNamePrefix("app:"))
		c := s.of(p, rcache.WithNear(10), rcache.WithRefresh(10*time.Second))
		began := time.Now()
		requireGet(t, c, "old") // loads
		requireGet(t, c, "old") // in Redis
		requireGet(t, c, "old") // near
		requireGet(t, s.of(p), "old")
		s.set("", errBoom)
		_, err := c.Get(t.Context(), "none")
		require.ErrorIs(t, err, errBoom)
		time.Sleep(10 * time.Second)
		s.set("new", nil)
		requireGet(t, c, "old") // and refreshes
		time.Sleep(2 * time.Second)
		requireGet(t, c, "new")
		want := rcache.Stats{Hits: 4, NearHits: 1, Stale: 1, Misses: 2, Loads: 3, Failures: 1}
		assert.Equal(t, want, c.Stats())

		all := report(t, viewer.Client, p.Client)
		require.Len(t, all, 1, "two caches of one name")
		near := all[0].Near
		require.NotNil(t, near)
		all[0].Near = nil
		assert.Equal(t, redlatch.CacheInfo{Kind: "cache", Name: "users", NearHits: 1, Hits: 4, Misses: 2, Stale: 1, Loads: 3, Failures: 1}, all[0])
		assert.True(t, near.Connected)
		assert.Equal(t, 1, near.Entries)
		assert.Equal(t, 30*time.Second, near.MaxStale)
		assert.WithinDuration(t, began, near.Since, 0)
		assert.True(t, near.Heard.IsZero())
		assert.Zero(t, near.Invalidations)

		time.Sleep(time.Second)
		require.NoError(t, s.of(viewer, rcache.WithNear(0)).Invalidate(t.Context(), "k"))
		synctest.Wait()
		near = report(t, viewer.Client, p.Client)[0].Near
		assert.EqualValues(t, 1, near.Invalidations)
		assert.WithinDuration(t, time.Now(), near.Heard, 0)
		lost := time.Now()
		p.Cut()
		synctest.Wait()
		requireGet(t, c, "new")
		synctest.Wait()
		near = report(t, viewer.Client, p.Client)[0].Near
		assert.True(t, near.Connected, "again")
		assert.False(t, near.Since.Before(lost))
	})
}

func TestClientListensWhileItReadsACache(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, viewer := b.Peer(t), b.Peer(t)
		c := rcache.New[string, string](p.Client, "users", nil)
		listen := func() bool {
			all, err := viewer.Clients(t.Context())
			require.NoError(t, err)
			return len(all) > 0
		}
		for range 10 {
			_, err := c.Get(t.Context(), "k")
			require.ErrorIs(t, err, rcache.ErrNotFound)
			time.Sleep(time.Second)
		}
		assert.True(t, listen())
		assert.Equal(t, []redlatch.CacheInfo{{Kind: "cache", Name: "users", Misses: 10}}, report(t, viewer.Client, p.Client))
		time.Sleep(time.Minute)
		assert.False(t, listen(), "it reads nothing any more")
	})
}

func TestCountsOfManyNamesAreBounded(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for i := range 1001 {
			c := rcache.New[string, string](p.Client, fmt.Sprint(i), nil)
			_, err := c.Get(t.Context(), "k")
			require.ErrorIs(t, err, rcache.ErrNotFound)
			require.Equal(t, rcache.Stats{Misses: 1}, c.Stats())
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		assert.Len(t, report(t, b.Peer(t).Client, p.Client), 1000)
	})
}
