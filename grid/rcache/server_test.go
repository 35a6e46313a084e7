package rcache_test

import (
	"context"
	"errors"
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
	"github.com/redlatch/redlatch/internal/test/gridtest"
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
	if near { // an own change that does not end a value is seen for long
		opts = []rcache.Option{rcache.WithNear(100)}
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

// F28
func TestLoadsOnAServerThatIsFull(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(2*time.Second), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	full := func(ctx context.Context, limit string) {
		assert.NoError(t, rdb.ConfigSet(ctx, "maxmemory", limit).Err())
	}
	held := false
	load := func(ctx context.Context, k string) (string, error) {
		if k != "held" {
			return k, nil
		}
		full(ctx, "1")
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(5 * time.Second): // more than two leases, each longer than a busy machine stands still
			held = true
		}
		return k, nil
	}
	c := rcache.New(client, "users", load)
	v, err := c.Get(t.Context(), "kept")
	require.NoError(t, err)
	require.Equal(t, "kept", v)

	v, err = c.Get(t.Context(), "held") // which fills Redis
	require.NoError(t, err, "what was loaded is returned although it cannot be kept")
	require.Equal(t, "held", v)
	assert.True(t, held, "the claim is renewed while Redis is full")
	redistest.Eventually(t, 10*time.Second, "the claim is released while Redis is full", func() error {
		n, err := rdb.Exists(t.Context(), c.Key("held")).Result()
		if err == nil && n > 0 {
			err = errors.New("the key is there")
		}
		return err
	})
	v, err = c.Get(t.Context(), "kept")
	require.NoError(t, err, "what is kept can be read")
	require.Equal(t, "kept", v)
	_, err = c.Get(t.Context(), "other")
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	require.ErrorIs(t, c.Set(t.Context(), "other", "v"), redlatch.ErrUnwritable)
	v, err = rcache.New(client, "users", load, rcache.WithFailOpen()).Get(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, "other", v)
	require.NoError(t, c.Invalidate(t.Context(), "kept"))
	full(t.Context(), "0")
	_, ok, err := c.Peek(t.Context(), "kept")
	require.NoError(t, err)
	assert.False(t, ok)
}

// F30: the refused attempt has published its message.
func TestChangeThatIsRefusedAndSentAgainLeavesNothingOldNear(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, c *cache) error{
		"Set":        func(ctx context.Context, c *cache) error { return c.Set(ctx, "k", "new") },
		"Invalidate": func(ctx context.Context, c *cache) error { return c.Invalidate(ctx, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
				load := func(context.Context, string) (string, error) { return "new", nil }
				c := rcache.New(p.Client, "users", load, rcache.WithNear(10))
				// isNear gets the value, and reports whether it was near.
				isNear := func(t *testing.T) bool {
					before := c.Stats().NearHits
					requireGet(t, c, "old")
					return c.Stats().NearHits > before
				}
				await := func(t *testing.T, near bool) {
					redistest.Eventually(t, 10*time.Second, "the value is near, or not", func() error {
						if isNear(t) != near {
							return errNotNear
						}
						return nil
					})
				}
				redistest.Eventually(t, time.Minute, "the change is sent again", func() error {
					require.NoError(t, c.Set(t.Context(), "k", "old"))
					await(t, true)
					p.RefuseWrites(t, true)
					done := make(chan error, 1)
					go func() { done <- change(t.Context(), c) }()
					await(t, false) // the message has come, and the old value is near again
					p.RefuseWrites(t, false)
					if err := <-done; err != nil {
						require.ErrorIs(t, err, redlatch.ErrUnwritable)
						return err // it was given up before
					}
					requireGet(t, c, "new")
					return nil
				})
			})
		})
	}
}

func TestValueThatCannotBeDecodedNorDeletedIsAnError(t *testing.T) {
	for name, refuse := range map[string]struct {
		do   func(t *testing.T, p *gridtest.Place)
		want string
		open bool // a cache that fails open loads
	}{
		"refused": {func(t *testing.T, p *gridtest.Place) { p.RefuseWrites(t, true) }, "NOREPLICAS", true},
		"no right": {func(t *testing.T, p *gridtest.Place) {
			require.NoError(t, p.Redis.Do(t.Context(), "acl", "setuser", "default", "-hdel").Err())
		}, "the server lacks a command, or the user a right", false},
	} {
		t.Run(name, func(t *testing.T) {
			gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				load := func(context.Context, string) (int, error) { return 7, nil }
				require.NoError(t, rcache.New[string, string](p.Client, "users", nil).Set(ctx, "k", "text"))
				refuse.do(t, p)
				_, err := rcache.New(p.Client, "users", load).Get(ctx, "k")
				require.ErrorContains(t, err, refuse.want)
				v, err := rcache.New(p.Client, "users", load, rcache.WithFailOpen()).Get(ctx, "k")
				if !refuse.open {
					require.ErrorContains(t, err, refuse.want)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, 7, v)
			})
		})
	}
}

// Near caches of a cluster hear of changes on every node, and loads of any slot are waited for.
func TestCacheOfAClusterLoadsOnceAndInvalidatesNearValues(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	var table [16]atomic.Int64
	var loads atomic.Int32
	var caches []*rcache.Cache[int, int64]
	for range 2 {
		client, err := redlatch.New(cluster.Client(t), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		caches = append(caches, rcache.New(client, "users", func(_ context.Context, k int) (int64, error) {
			loads.Add(1)
			time.Sleep(20 * time.Millisecond) // others wait meanwhile
			return table[k].Load(), nil
		}, rcache.WithNear(100), rcache.WithMaxStale(time.Hour)))
	}
	keys := make([]int, len(table))
	for i := range keys {
		keys[i] = i
	}
	get := func() {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := caches[i%2].GetAll(t.Context(), keys)
				assert.NoError(t, err)
			})
		}
		all.Wait()
	}
	get()
	assert.EqualValues(t, len(keys), loads.Load())
	redistest.Eventually(t, 10*time.Second, "all values are near", func() error {
		before := caches[1].Stats().NearHits
		get()
		if caches[1].Stats().NearHits-before < uint64(10*len(keys)) {
			return errNotNear
		}
		return nil
	})
	for k := range table {
		table[k].Add(1)
	}
	require.NoError(t, caches[0].Invalidate(t.Context(), keys...))
	redistest.Eventually(t, 10*time.Second, "the other client has all new values", func() error {
		all, err := caches[1].GetAll(t.Context(), keys)
		for _, v := range all {
			if v != 1 {
				err = errNotNear
			}
		}
		return err
	})
}

// F30
func TestStalenessIsBoundedUnderFaultsOnAServer(t *testing.T) {
	server := redistest.Start(t)
	writer, w := clientOf(t, server)
	other, r := clientOf(t, server)
	a := &gridtest.Attack{MaxStale: 500 * time.Millisecond, Length: time.Duration(faulttest.Rounds(t, 2, 60)) * time.Second, Pause: 4 * time.Millisecond}
	a.OnServer(w, r)
	node := func(c *redlatch.Client) (*cache, gridtest.Calls) {
		users := rcache.New[string, string](c, "users", nil, rcache.WithNear(100), rcache.WithMaxStale(a.MaxStale))
		return users, gridtest.Calls{Write: users.Set, Read: users.Get}
	}
	_, writes := node(writer)
	reader, reads := node(other)
	a.Run(t, writes, reads)
	assert.NotZero(t, reader.Stats().NearHits)
}
