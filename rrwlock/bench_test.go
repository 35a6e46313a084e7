package rrwlock_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// BenchmarkPairs measures acquisitions with their releases by 64 goroutines of one client: readers of one lock, beside the
// reentrant lock with a key for each.
func BenchmarkPairs(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr()})
	b.Cleanup(func() { require.NoError(b, rdb.Close()) })
	c, err := redlatch.New(rdb)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	shared := c.GetReadWriteLock("shared").RLocker()
	for _, bc := range []struct {
		name string
		lock func(i int) rlock.Locker
	}{
		{"Readers", func(int) rlock.Locker { return shared }},
		{"ReadersApart", func(i int) rlock.Locker { return c.GetReadWriteLock(fmt.Sprint("apart", i)).RLocker() }},
		{"Writers", func(i int) rlock.Locker { return c.GetReadWriteLock(fmt.Sprint("writer", i)) }},
		{"Reentrant", func(i int) rlock.Locker { return c.GetLock(fmt.Sprint("plain", i)) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			const goroutines = 64
			var users sync.WaitGroup
			for i := range goroutines {
				l := bc.lock(i)
				users.Go(func() {
					for range max(b.N/goroutines, 1) {
						h, err := l.Lock(b.Context())
						if err == nil {
							err = h.Unlock(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			users.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}
