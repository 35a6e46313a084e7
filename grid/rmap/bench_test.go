package rmap_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// point is a value without pointers.
type point struct {
	ID   int64
	Name string
	X, Y float64
}

// hits reads 5,000 entries that are near, over and over.
func hits[V any](b *testing.B, client *redlatch.Client, parallel bool, opts ...rmap.Option) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context()) // as a service's is
	defer cancel()
	m := rmap.New[int, V](client, "points", append([]rmap.Option{rmap.WithNear(10_000), rmap.WithMaxStale(time.Hour)}, opts...)...)
	keys := make([]int, 5000)
	for i := range keys {
		keys[i] = i
	}
	redistest.Eventually(b, 10*time.Second, "the entries are near", func() error {
		if _, err := m.GetAll(ctx, keys); err != nil || m.NearStats().Entries < len(keys) {
			return errNotYet
		}
		return nil
	})
	read := func(i int) {
		if _, ok, err := m.Get(ctx, i%len(keys)); !ok || err != nil {
			b.Error(ok, err)
		}
	}
	missed := m.NearStats().Misses
	b.ReportAllocs()
	if parallel {
		b.RunParallel(func(p *testing.PB) {
			for i := 0; p.Next(); i++ {
				read(i)
			}
		})
	} else {
		for i := 0; b.Loop(); i++ {
			read(i)
		}
	}
	require.Less(b, m.NearStats().Misses-missed, uint64(1000), "stripes are shared")
}

func BenchmarkNearHit(b *testing.B) {
	rdb := redistest.Shared(b).Client(b)
	client, err := redlatch.New(rdb)
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	all := map[int]point{}
	for i := range 5000 {
		all[i] = point{1, "tea", 1, 2}
	}
	require.NoError(b, rmap.New[int, point](client, "points").SetAll(b.Context(), all))
	b.Run("plain", func(b *testing.B) { hits[point](b, client, false) })
	b.Run("shared", func(b *testing.B) { hits[*point](b, client, false, rmap.WithSharedValues()) })
	b.Run("decoded", func(b *testing.B) { hits[*point](b, client, false) })
	b.Run("parallel", func(b *testing.B) { hits[point](b, client, true) })
}
