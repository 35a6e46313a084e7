package scenario_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// objects returns what Objects yields, by name. Nothing comes twice here.
func objects(t *testing.T, c *redlatch.Client, pattern string, opts ...redlatch.ObjectsOption) map[string]redlatch.Object {
	t.Helper()
	all := map[string]redlatch.Object{}
	for o, err := range c.Objects(t.Context(), pattern, opts...) {
		require.NoError(t, err)
		require.NotContains(t, all, o.Name)
		all[o.Name] = o
	}
	return all
}

// furnished has one client hold each kind of object, and another one wait for a fair lock and a semaphore.
func furnished(t *testing.T, w *watched, name func(kind string) string) {
	t.Helper()
	for kind, get := range lockKinds {
		hold, err := get(w.holder, name(kind)).Lock(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, hold.Unlock(context.WithoutCancel(t.Context()))) })
	}
	require.NoError(t, w.holder.GetPermitSemaphore(name("permit")).SetPermits(t.Context(), 3))
	permit, err := w.holder.GetPermitSemaphore(name("permit")).Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, permit.Release(context.WithoutCancel(t.Context()))) })
	_, err = w.holder.GetSemaphore(name("semaphore")).TrySetPermits(t.Context(), 2)
	require.NoError(t, err)
	_, err = w.holder.GetCountDownLatch(name("latch")).TrySetCount(t.Context(), 4)
	require.NoError(t, err)
	_, err = redlatch.GetDelayedQueue[string](w.holder, name("queue")).Offer(t.Context(), "work", time.Hour)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { _, err := w.waiter.GetFairLock(name("fair")).Lock(ctx); ended <- err }()
	go func() { ended <- w.waiter.GetSemaphore(name("awaited")).Acquire(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	})
	await(t, 1, func() (int, error) {
		info, err := w.viewer.GetFairLock(name("fair")).Info(t.Context())
		return info.Waiting, err
	})
	await(t, 1, func() (int, error) {
		info, err := w.viewer.GetSemaphore(name("awaited")).Info(t.Context())
		return info.Waiting, err
	})
	strangers(t, w.rdb, name)
}

// strangers are keys of other programs, some of which look nearly like a lock's.
func strangers(t *testing.T, rdb redis.UniversalClient, name func(kind string) string) {
	t.Helper()
	for _, err := range []error{
		rdb.Set(t.Context(), name("text"), "text", 0).Err(),
		rdb.Set(t.Context(), name("number"), 7, 0).Err(),
		rdb.HSet(t.Context(), name("one field"), "name", "value").Err(),
		rdb.HSet(t.Context(), name("count"), "visits", 7).Err(),
		rdb.HSet(t.Context(), name("session"), "8743c9c0-0795-4907-87fd-6c719a6b4586:57", "seven").Err(),
		rdb.HSet(t.Context(), name("many"), "a:1", 1, "b:2", 2).Err(),
		rdb.HSet(t.Context(), name("moods"), "mode", "happy").Err(),
		rdb.ZAdd(t.Context(), "{"+name("set")+"}:timeout", redis.Z{Score: 1, Member: "m"}).Err(),
		rdb.RPush(t.Context(), name("list"), "x").Err(),
		rdb.Set(t.Context(), "redlatch_else", "x", 0).Err(),
	} {
		require.NoError(t, err)
	}
}

func TestObjectsFindsWhatIsThereAndNothingElse(t *testing.T) {
	onEachTopology(t, func(t *testing.T, w *watched) {
		all := fresh(t) + "/"
		name := func(kind string) string { return all + kind }
		furnished(t, w, name)
		found := objects(t, w.viewer, all+"*")
		kinds := map[string]string{}
		for n, o := range found {
			kinds[n] = o.Kind
		}
		require.Equal(t, map[string]string{
			name("plain"): "lock", name("fenced"): "lock", name("fair"): "fair_lock", name("writer"): "rw_lock", name("reader"): "rw_lock",
			name("permit"): "permits", name("semaphore"): "semaphore", name("awaited"): "semaphore", name("latch"): "latch",
			name("queue"): "queue",
		}, kinds)
		plain, ok := found[name("plain")].Info.(rlock.Info)
		require.True(t, ok)
		assert.Equal(t, w.holder.ID(), plain.Client)
		fenced, ok := found[name("fenced")].Info.(rlock.Info)
		require.True(t, ok)
		assert.Positive(t, fenced.Token)
		fair, ok := found[name("fair")].Info.(rfairlock.Info)
		require.True(t, ok)
		assert.Len(t, fair.Queue, 1)
		writer, ok := found[name("writer")].Info.(rrwlock.Info)
		require.True(t, ok)
		assert.Equal(t, rrwlock.Writing, writer.Mode)
		permits, ok := found[name("permit")].Info.(rsemaphore.PermitSemaphoreInfo)
		require.True(t, ok)
		assert.Len(t, permits.Holders, 1)
		assert.Equal(t, rsemaphore.SemaphoreInfo{Name: name("semaphore"), Available: 2}, found[name("semaphore")].Info)
		assert.Equal(t, rsemaphore.SemaphoreInfo{Name: name("awaited"), Waiting: 1}, found[name("awaited")].Info)
		latch, ok := found[name("latch")].Info.(rlatch.Info)
		require.True(t, ok)
		assert.Equal(t, 4, latch.Count)
		stats, ok := found[name("queue")].Info.(rdelayedqueue.Stats)
		require.True(t, ok)
		assert.Equal(t, 1, stats.Delayed)

		assert.Equal(t, []string{name("latch")}, slices.Collect(maps.Keys(objects(t, w.viewer, all+"l?tch"))))
		assert.Len(t, objects(t, w.viewer, all+"f[ae]*"), 2, "fair and fenced")
		for _, kind := range slices.Compact(slices.Sorted(maps.Values(kinds))) {
			want := maps.Clone(kinds)
			maps.DeleteFunc(want, func(_, k string) bool { return k != kind })
			of := objects(t, w.viewer, all+"*", redlatch.WithKinds(kind))
			assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(of)), kind)
		}
		assert.Len(t, objects(t, w.viewer, all+"*", redlatch.WithKinds("latch"), redlatch.WithKinds("queue")), 2)
		for o, err := range w.viewer.Objects(t.Context(), all+"*") {
			require.NoError(t, err)
			assert.Contains(t, found, o.Name)
			break // is no error
		}
	})
}

// Names with a tag of their own, and of a client with a prefix.
func TestObjectsFindsElectionsAndSchedulers(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "app:"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			c, err := redlatch.New(s.Client(t), redlatch.WithNamePrefix(prefix))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			leads, err := c.GetElection("workers").Campaign(t.Context(), relection.WithValue("a"))
			require.NoError(t, err)
			jobs := c.GetScheduler("billing")
			ran := make(chan struct{})
			require.NoError(t, jobs.Register("close", rscheduler.At(time.Now()), func(context.Context, rscheduler.Run) error {
				close(ran)
				return nil
			}, rscheduler.WithCatchUp(time.Hour)))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- jobs.Run(ctx) }()
			<-ran
			stop()
			require.NoError(t, <-ended)
			all := objects(t, c, "") // neither a lock nor a queue besides
			require.Len(t, all, 2)
			assert.Equal(t, "election", all["workers"].Kind)
			assert.Equal(t, "a", all["workers"].Info.(relection.Leader).Value)
			assert.Equal(t, "scheduler", all["billing"].Kind)
			assert.Equal(t, "close", all["billing"].Info.([]rscheduler.Job)[0].Name)
			ctx, stop = context.WithCancel(t.Context())
			go func() { _, err := c.GetElection("workers").Campaign(ctx); ended <- err }()
			await(t, 1, func() (int, error) {
				all, err := c.GetElection("workers").Candidates(t.Context())
				return len(all), err
			})
			assert.Len(t, objects(t, c, ""), 2, "a candidate waits")
			stop()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.NoError(t, leads.Resign(t.Context()))
			assert.NotContains(t, objects(t, c, "", redlatch.WithKinds("election")), "workers", "nobody leads")
		})
	}
}

func TestObjectsTellsExecutorsFromQueues(t *testing.T) {
	t.Parallel()
	for prefix, names := range map[string]struct{ executors, queues []string }{
		"":      {[]string{"media", "{tag}:media"}, []string{"mails:tasks", "{mails}:tasks"}},
		"app:":  {[]string{"media", "{tag}:media"}, []string{"mails:tasks", "{mails}:tasks"}},
		"{eu}:": {[]string{"media"}, []string{"mails:tasks"}},
	} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			t.Parallel()
			c, err := redlatch.New(redistest.Start(t).Client(t), redlatch.WithNamePrefix(prefix))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			kinds := map[string]string{}
			for _, name := range names.executors {
				require.NoError(t, rexecutor.NewTask[string, struct{}]("resize").Send(t.Context(), rexecutor.New(c, name), "a.png"))
				kinds[name] = "executor"
			}
			for _, name := range names.queues {
				_, err = redlatch.GetDelayedQueue[string](c, name).Offer(t.Context(), "hello", time.Hour)
				require.NoError(t, err)
				kinds[name] = "queue"
			}
			all := objects(t, c, "")
			require.Len(t, all, len(kinds))
			for name, kind := range kinds {
				assert.Equal(t, kind, all[name].Kind, name)
			}
			of, ok := all["media"].Info.(rexecutor.Stats)
			require.True(t, ok)
			require.Len(t, of.Tasks, 1)
			assert.True(t, of.Tasks[0].Orphaned)
			assert.ElementsMatch(t, names.queues, slices.Collect(maps.Keys(objects(t, c, "", redlatch.WithKinds("queue")))))
			assert.ElementsMatch(t, names.executors, slices.Collect(maps.Keys(objects(t, c, "", redlatch.WithKinds("executor")))))
			assert.Len(t, objects(t, c, "med*"), 1)
			assert.Len(t, objects(t, c, "mails*"), 1)
		})
	}
}

func TestObjectsTellsSemaphoresAndLatchesApart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := redlatch.New(s.Client(t), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	_, err = c.GetCountDownLatch("latch").TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, s.Client(t).Del(t.Context(), "redlatch_latch_set:{latch}").Err(), "an hour has passed")
	require.NoError(t, c.GetPermitSemaphore("free").SetPermits(t.Context(), 1))
	require.NoError(t, c.GetPermitSemaphore("taken").SetPermits(t.Context(), 1))
	_, err = c.GetPermitSemaphore("taken").Acquire(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := c.GetPermitSemaphore("taken").Acquire(ctx); ended <- err }()
	await(t, 1, func() (int, error) {
		info, err := c.GetPermitSemaphore("taken").Info(t.Context())
		return info.Waiting, err
	})
	kinds := map[string]string{}
	for name, o := range objects(t, c, "") {
		kinds[name] = o.Kind
	}
	assert.Equal(t, map[string]string{"latch": "latch", "free": "permits", "taken": "permits"}, kinds)
	assert.Empty(t, objects(t, c, "", redlatch.WithKinds("semaphore")), "on its channel a semaphore of leased permits is no other one")
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestObjectsFindsBarriers(t *testing.T) {
	for _, prefix := range []string{"", "app:"} {
		for _, name := range []string{"start", "{eu}:start"} {
			t.Run(prefix+name, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					c := b.Peer(t, redlatch.WithNamePrefix(prefix))
					kinds := func(opts ...redlatch.ObjectsOption) (found map[string]int) {
						found = map[string]int{}
						for o, err := range c.Objects(t.Context(), name, opts...) {
							require.NoError(t, err)
							assert.Equal(t, name, o.Name)
							kind := o.Kind
							if info, ok := o.Info.(rbarrier.Info); ok {
								kind = fmt.Sprint(kind, info.Double)
								assert.Equal(t, rbarrier.Info{
									Name: name, Double: info.Double, Participants: 2,
									Arrived: rbarrier.Crowd{Count: 1, Places: info.Arrived.Places},
								}, info)
							}
							found[kind]++
						}
						return found
					}
					assert.Empty(t, kinds())
					// Of one name, which is also that of a number.
					require.NoError(t, c.GetSemaphore(name).AddPermits(t.Context(), 1))
					ended := make(chan error, 2)
					single, double := c.GetBarrier(name, 2), c.GetDoubleBarrier(name, 2)
					go func() { ended <- single.Await(t.Context()) }()
					go func() { ended <- double.Enter(t.Context()) }()
					time.Sleep(time.Minute)
					assert.Equal(t, map[string]int{"semaphore": 1, "barriertrue": 1, "barrierfalse": 1}, kinds())
					assert.Equal(t, map[string]int{"barriertrue": 1, "barrierfalse": 1}, kinds(redlatch.WithKinds("barrier")))
					assert.Empty(t, kinds(redlatch.WithKinds("lock")))
					require.NoError(t, single.Await(t.Context()))
					require.NoError(t, c.GetDoubleBarrier(name, 2).Enter(t.Context()))
					require.NoError(t, <-ended)
					require.NoError(t, <-ended)
					require.NoError(t, c.Close())
				})
			})
		}
	}
}

// However many keys it has, and whatever its name and its keys look like.
func TestObjectsFindsEachCacheOnce(t *testing.T) {
	onEachTopology(t, func(t *testing.T, w *watched) {
		all := fresh(t) + ":"
		names := []string{all + "users", all + "users:eu", all + "{eu}:users"}
		for _, name := range names {
			users := rcache.New[string, int](w.holder, name, nil)
			for i := range 50 {
				require.NoError(t, users.Set(t.Context(), fmt.Sprint("}:{", i), i))
			}
		}
		for _, key := range []string{"redlatch_cache:", "redlatch_cache:5", "redlatch_cache:9:{a:k}", "redlatch_cache:1:{" + all + ":k}"} {
			require.NoError(t, w.rdb.Set(t.Context(), key, "x", 0).Err())
		}
		require.NoError(t, w.holder.GetSemaphore(names[0]).AddPermits(t.Context(), 1))
		found := map[string]int{}
		for o, err := range w.viewer.Objects(t.Context(), all+"*", redlatch.WithKinds("cache")) {
			require.NoError(t, err)
			assert.Equal(t, redlatch.Object{Kind: "cache", Name: o.Name}, o)
			found[o.Name]++
		}
		assert.Equal(t, map[string]int{names[0]: 1, names[1]: 1, names[2]: 1}, found)
		n := 0
		for _, err := range w.viewer.Objects(t.Context(), all+"users") {
			require.NoError(t, err)
			n++
		}
		assert.Equal(t, 2, n, "a semaphore and a cache of one name")
		assert.NotContains(t, objects(t, w.viewer, all+"*", redlatch.WithKinds("queue")), names[1])
	})
}

// Whichever of them SCAN finds first, and however far from the other.
func TestObjectsFindsAnObjectBesideANumberOfItsName(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := redlatch.New(s.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	const names = 100
	for i := range names {
		require.NoError(t, c.GetSemaphore(fmt.Sprint(i)).AddPermits(t.Context(), 1))
		_, err := redlatch.GetDelayedQueue[string](c, fmt.Sprint(i)).Offer(t.Context(), "work", time.Hour)
		require.NoError(t, err)
	}
	rdb := s.Client(t)
	for i := range 10 * names {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprint("redlatch_else", i), "x", 0).Err())
	}
	found := map[string]int{}
	for o, err := range c.Objects(t.Context(), "") {
		require.NoError(t, err)
		found[o.Kind]++
	}
	assert.Equal(t, map[string]int{"semaphore": names, "queue": names}, found)
}

func TestObjectsKnowsPrefixesAndHashTags(t *testing.T) {
	server := redistest.Start(t)
	open := func(opts ...redlatch.Option) *redlatch.Client {
		c, err := redlatch.New(server.Client(t), append(opts, redlatch.WithCloseGrace(0))...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	plain, prefixed, odd := open(), open(redlatch.WithNamePrefix("shop:")), open(redlatch.WithNamePrefix("a*[b]?"))
	for _, c := range []*redlatch.Client{plain, prefixed, odd} {
		for _, name := range []string{"orders", "{eu}:orders"} {
			require.NoError(t, c.GetPermitSemaphore(name+"-permits").SetPermits(t.Context(), 1))
			_, err := c.GetPermitSemaphore(name + "-permits").Acquire(t.Context())
			require.NoError(t, err)
			_, err = redlatch.GetDelayedQueue[string](c, name+"-jobs").Offer(t.Context(), "work", time.Hour)
			require.NoError(t, err)
			_, err = c.GetSemaphore(name+"-count").TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			_, err = c.GetLock(name).Lock(t.Context())
			require.NoError(t, err)
		}
	}
	want := []string{
		"orders", "orders-count", "orders-jobs", "orders-permits",
		"{eu}:orders", "{eu}:orders-count", "{eu}:orders-jobs", "{eu}:orders-permits",
	}
	assert.Equal(t, want, slices.Sorted(maps.Keys(objects(t, prefixed, ""))))
	assert.Equal(t, want, slices.Sorted(maps.Keys(objects(t, odd, "*"))))
	assert.Len(t, objects(t, plain, ""), 24)
	assert.Equal(t, []string{"{eu}:orders-jobs"}, slices.Sorted(maps.Keys(objects(t, prefixed, `{eu}:orders-j*`))))
	assert.Empty(t, objects(t, prefixed, `orders\*`))
}

// Whatever there is in Redis, Objects has it look at some hundred keys at a time, and keeps nothing.
func TestObjectsStaysSmallAmongManyKeys(t *testing.T) { // alone, since it measures the heap
	keys := faulttest.Rounds(t, 20_000, 1_000_000)
	locks := keys / 10
	server := redistest.Start(t)
	rdb := server.Client(t)
	const chunk = 5_000
	for at := 0; at < keys; at += chunk {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := at; i < min(at+chunk, keys); i++ {
				if i < locks {
					p.HSet(t.Context(), fmt.Sprint("lock", i), fmt.Sprint("web.9f2c1a0b77d01e42:", i), 1)
					p.PExpire(t.Context(), fmt.Sprint("lock", i), time.Hour)
				} else {
					p.Set(t.Context(), fmt.Sprint("session", i), "text", 0)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	c, err := redlatch.New(server.Client(t), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	redistest.WatchCalls(t, rdb, 2*time.Millisecond)
	n, before, most := 0, 0, 0
	for _, err := range c.Objects(t.Context(), "") {
		require.NoError(t, err)
		switch n++; {
		case n == locks/10:
			before = heap()
		case n > locks/10 && n%(locks/10) == 0:
			most = max(most, heap()-before)
		}
	}
	assert.GreaterOrEqual(t, n, locks)
	assert.Less(t, most, 1<<20, "the heap grew by so much from the first tenth of the locks on")
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	scans, many := 0, map[string]bool{}
	for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=\d+,usec_per_call=([\d.]+)`).FindAllStringSubmatch(stats, -1) {
		calls, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		took, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		t.Logf("%s: %d calls, %.1f us each", m[1], calls, took)
		if many[m[1]] = calls >= 100; many[m[1]] { // else one pause of the machine decides, as of the call that brings a script
			assert.Less(t, took, 2000.0, "us of %s on average", m[1])
		}
		if m[1] == "scan" {
			scans = calls
			assert.GreaterOrEqual(t, calls, 3*keys/1000, "no SCAN looks at more than some hundred keys")
		}
		assert.NotEqual(t, "keys", m[1])
	}
	// The machine may take time away in the middle of a call, so some long ones prove nothing; a call that is always long is no exception.
	if long := redistest.LongCalls(t, rdb, "scan"); len(long) > 0 {
		t.Logf("%d of %d SCANs took 2 ms or more, the longest %v: %.60q", len(long), scans, long[0].Duration, long[0].Args)
		assert.Less(t, len(long), max(10, scans/4))
	}
	stats, err = rdb.Info(t.Context(), "latencystats").Result() // since Redis 7
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`latency_percentiles_usec_(\w+):.*p99=([\d.]+),(.*)`).FindAllStringSubmatch(stats, -1) {
		most, err := strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
		t.Logf("%s: p99 %.0f us, %s", m[1], most, m[3])
		if faulttest.Soaking() && many[m[1]] { // one in a hundred of the usual calls is too few
			assert.Less(t, most, 2000.0, "us of %s, but for one in a hundred", m[1]) // of which the machine took the time away
		}
	}
}

func TestObjectsEndsWithItsContextAndItsClient(t *testing.T) {
	c, err := embedded.Open()
	require.NoError(t, err)
	first := func(ctx context.Context, pattern string) error {
		for _, err := range c.Objects(ctx, pattern) {
			return err
		}
		return nil
	}
	require.NoError(t, first(t.Context(), ""))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, first(ended, ""), context.Canceled)
	require.ErrorIs(t, first(nil, ""), redlatch.ErrInvalid)
	require.ErrorIs(t, first(t.Context(), fmt.Sprintf("%513d", 0)), redlatch.ErrInvalid)
	for _, err := range c.Objects(t.Context(), "", nil) {
		require.ErrorIs(t, err, redlatch.ErrInvalid)
	}
	require.NoError(t, c.Close())
	require.ErrorIs(t, first(t.Context(), ""), redlatch.ErrClosed)
}

// F16, F26
func TestWhatLooksEndsWithItsContext(t *testing.T) {
	for what, look := range map[string]func(ctx context.Context, c *redlatch.Client) error{
		"topic": func(ctx context.Context, c *redlatch.Client) error {
			_, err := redlatch.GetTopic[string](c, "news").Info(ctx)
			return err
		},
		"clients": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.Clients(ctx)
			return err
		},
		"objects": func(ctx context.Context, c *redlatch.Client) error {
			for _, err := range c.Objects(ctx, "") {
				return err
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				require.NoError(t, look(t.Context(), p.Client))
				p.Blackhole(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
				start := time.Now()
				err := look(ctx, p.Client)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				assert.LessOrEqual(t, time.Since(start), 350*time.Millisecond)
				p.Blackhole(false)
			})
		})
	}
}
