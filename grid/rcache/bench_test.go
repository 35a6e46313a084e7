package rcache_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// user is a value without pointers.
type user struct {
	ID   int64
	Name string
	City string
}

func benchmarked(b *testing.B, opts ...rcache.Option) *rcache.Cache[int64, user] {
	b.Helper()
	client, err := redlatch.New(redistest.Shared(b).Client(b), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	return rcache.New(client, "users", func(_ context.Context, id int64) (user, error) { return user{id, "ann", "Oslo"}, nil }, opts...)
}

func BenchmarkHit(b *testing.B) {
	c, ctx := benchmarked(b), b.Context()
	hit := func(b *testing.B) {
		b.Helper()
		if _, err := c.Get(ctx, 1); err != nil {
			b.Error(err)
		}
	}
	hit(b)
	b.Run("1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hit(b)
		}
	})
	b.Run("64", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				hit(b)
			}
		})
	})
}

var errNotNear = errors.New("not near yet")

func BenchmarkNearHit(b *testing.B) {
	c, ctx := benchmarked(b, rcache.WithNear(1000), rcache.WithMaxStale(time.Hour)), b.Context()
	redistest.Eventually(b, 10*time.Second, "the value is near", func() error {
		if _, err := c.Get(ctx, 1); err != nil || c.Stats().NearHits == 0 {
			return errors.Join(err, errNotNear)
		}
		return nil
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(ctx, 1); err != nil {
			b.Error(err)
		}
	}
}
