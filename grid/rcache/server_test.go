package rcache_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// clientOf returns a client of a server, behind a proxy.
func clientOf(tb testing.TB, server *redistest.Server) (*redlatch.Client, *faulttest.Proxy) {
	tb.Helper()
	proxy := faulttest.NewProxy(tb, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 300 * time.Millisecond})
	client, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(tb, err)
	tb.Cleanup(func() {
		assert.NoError(tb, client.Close())
		assert.NoError(tb, rdb.Close())
	})
	return client, proxy
}

// F31
func TestStampedeOnAServerLoadsOnce(t *testing.T) {
	server := redistest.Start(t)
	witness := faulttest.NewWitness(t, server.Addr(), "stampede")
	var caches []*rcache.Cache[int, string]
	var loads atomic.Int32
	for range 3 {
		client, _ := clientOf(t, server)
		caches = append(caches, rcache.New(client, "users", func(_ context.Context, id int) (string, error) {
			who := strconv.Itoa(int(loads.Add(1)))
			assert.True(t, witness.Enter(who), "one load at a time")
			defer witness.Exit(who)
			time.Sleep(50 * time.Millisecond) // what is loaded is slow
			return strconv.Itoa(id), nil
		}))
	}
	for id := range 3 {
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				v, err := caches[i%len(caches)].Get(t.Context(), id)
				assert.NoError(t, err)
				assert.Equal(t, strconv.Itoa(id), v)
			})
		}
		all.Wait()
	}
	assert.EqualValues(t, 3, loads.Load())
}

// table is what caches load from: a version for each key.
type table struct {
	versions [4]atomic.Int64
	over     [4]atomic.Int64 // versions below this are not to be seen by a Get that begins now
}

func (tb *table) load(_ context.Context, k int) (int64, error) {
	v := tb.versions[k].Load()
	time.Sleep(rand.N(2 * time.Millisecond)) // what is read gets old on the way
	return v, nil
}

// invalidated notes that nothing below a version is to be seen any more.
func (tb *table) invalidated(k int, v int64) {
	for {
		before := tb.over[k].Load()
		if before >= v || tb.over[k].CompareAndSwap(before, v) {
			return
		}
	}
}

// F31: no Get that began after Invalidate had returned sees what was read before, whatever happens to connections. A cache with near
// values promises that for the client that invalidates.
func TestNothingOlderIsSeenAfterInvalidate(t *testing.T) {
	for name, near := range map[string]bool{"plain": false, "near": true} {
		for faults, harmful := range map[string]bool{"calm": false, "faults": true} {
			t.Run(name+" "+faults, func(t *testing.T) { historyOf(t, near, harmful) })
		}
	}
}

func historyOf(t *testing.T, near, harmful bool) {
	server := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(faulttest.Rounds(t, 1, 20))*time.Second)
	defer cancel()
	var tb table
	var gets, changes, stale atomic.Int64
	opts := []rcache.Option{rcache.WithRefresh(20 * time.Millisecond), rcache.WithTTL(50 * time.Millisecond)}
	if near {
		opts = append(opts, rcache.WithNear(100), rcache.WithMaxStale(100*time.Millisecond))
	}
	var all sync.WaitGroup
	seen := make([]*table, 3)
	for i := range seen {
		client, proxy := clientOf(t, server)
		c := rcache.New(client, "versions", tb.load, opts...)
		mine := &tb // what this client may rely on
		if near {
			mine = &table{}
		}
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					k := rand.N(len(tb.versions))
					least := mine.over[k].Load()
					v, err := c.Get(ctx, k)
					switch {
					case err != nil:
					case v < least:
						stale.Add(1)
					default:
						gets.Add(1)
					}
				}
			})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				k := rand.N(len(tb.versions))
				v := tb.versions[k].Add(1)
				if c.Invalidate(ctx, k) == nil {
					mine.invalidated(k, v)
					changes.Add(1)
				}
				if harmful && i > 0 {
					harm(proxy)
				}
				time.Sleep(rand.N(20 * time.Millisecond)) // some loads are to be kept
			}
		})
	}
	all.Wait()
	t.Logf("%d reads, %d invalidations", gets.Load(), changes.Load())
	assert.Zero(t, stale.Load(), "of %d", gets.Load())
	assert.NotZero(t, gets.Load())
	assert.NotZero(t, changes.Load())
}

func harm(proxy *faulttest.Proxy) {
	switch rand.N(100) {
	case 0:
		proxy.Cut()
	case 1:
		proxy.DropReply(faulttest.Script, 1)
	case 2:
		proxy.DropMessages(true)
	case 3, 4, 5:
		proxy.DropMessages(false)
	}
}
