package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"

	"github.com/redlatch/redlatch/grid/rcache"
)

const (
	missProcesses = 4
	missCallers   = 250                    // in each process
	missWork      = 50 * time.Millisecond  // of a load
	missRound     = 400 * time.Millisecond // from one key to the next
	cacheTTL      = 10 * time.Minute
)

// loader loads what is missing.
type loader func(ctx context.Context) (string, error)

// cached is a cache that loads what is missing.
type cached struct {
	name  string
	get   func(ctx context.Context, key string) (string, error)
	close func() error
}

type openCache func(addr string, near bool, load loader) (cached, error)

func openCaches(addr string, near bool, load loader, opens ...openCache) (all []cached, err error) {
	for _, open := range opens {
		c, err := open(addr, near, load)
		if err != nil {
			return nil, errors.Join(err, closeCaches(all))
		}
		all = append(all, c)
	}
	return all, nil
}

func closeCaches(all []cached) (err error) {
	for _, c := range all {
		err = errors.Join(err, c.close())
	}
	return err
}

func openRCache(addr string, near bool, load loader) (cached, error) {
	s, err := newRedlatch(setup{Addr: addr, Lease: lease}, reentrantLock)
	if err != nil {
		return cached{}, err
	}
	opts := []rcache.Option{rcache.WithTTL(cacheTTL)}
	if near {
		opts = append(opts, rcache.WithNear(10_000), rcache.WithMaxStale(time.Hour))
	}
	c := rcache.New(s.client, "rcache", func(ctx context.Context, _ string) (string, error) { return load(ctx) }, opts...)
	return cached{rcacheName, c.Get, s.close}, nil
}

func newGoCache(addr string, near bool) (*cache.Cache, *redis.Client) {
	rdb := newGoRedis(setup{Addr: addr})
	opts := &cache.Options{Redis: rdb}
	if near {
		opts.LocalCache = cache.NewTinyLFU(10_000, cacheTTL)
	}
	return cache.New(opts), rdb
}

// openGoCache has calls of one key in a process share a read that is under way, and a load.
func openGoCache(addr string, near bool, load loader) (cached, error) {
	c, rdb := newGoCache(addr, near)
	return cached{goCacheName, func(ctx context.Context, key string) (value string, err error) {
		err = c.Once(&cache.Item{
			Ctx: ctx, Key: "once:" + key, Value: &value, TTL: cacheTTL,
			Do: func(item *cache.Item) (any, error) { return load(item.Context()) },
		})
		return value, err
	}, rdb.Close}, nil
}

// openGoCacheGet has each call ask, and each that finds nothing load.
func openGoCacheGet(addr string, near bool, load loader) (cached, error) {
	c, rdb := newGoCache(addr, near)
	return cached{goCacheGet, func(ctx context.Context, key string) (value string, err error) {
		if err = c.Get(ctx, "get:"+key, &value); !errors.Is(err, cache.ErrCacheMiss) {
			return value, err
		}
		if value, err = load(ctx); err != nil {
			return "", err
		}
		return value, c.Set(&cache.Item{Ctx: ctx, Key: "get:" + key, Value: value, TTL: cacheTTL})
	}, rdb.Close}, nil
}

func openAside(addr string, near bool, load loader) (cached, error) {
	c, err := rueidisaside.NewClient(rueidisaside.ClientOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: !near},
	})
	if err != nil {
		return cached{}, err
	}
	return cached{asideName, func(ctx context.Context, key string) (string, error) {
		return c.Get(ctx, cacheTTL, "aside:"+key, func(ctx context.Context, _ string) (string, error) { return load(ctx) })
	}, func() error { c.Close(); return nil }}, nil
}

// cacheRows measures caches that load what is missing.
func cacheRows(ctx context.Context, b *bench) ([]row, error) {
	far, err := hotRows(ctx, b, false)
	if err != nil {
		return nil, err
	}
	near, err := hotRows(ctx, b, true)
	if err != nil {
		return nil, err
	}
	missing, err := missingRows(ctx, b)
	return slices.Concat(far, near, missing), errors.Join(err, b.server.empty(ctx))
}

// hotRows measures calls for one key that has a value.
func hotRows(ctx context.Context, b *bench, near bool) (rows []row, err error) {
	all, err := openCaches(b.server.addr, near, func(context.Context) (string, error) { return payload, nil },
		openRCache, openGoCache, openGoCacheGet, openAside)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeCaches(all)) }()
	text, batch := "one key, read from Redis", 1
	if near {
		text, batch = "one key, near", nearBatch
	}
	open := make([]opened, len(all))
	for i, c := range all {
		get := func(ctx context.Context) error {
			for range batch {
				if value, err := c.get(ctx, "hot"); err != nil || value != payload {
					return found(value == payload, err)
				}
			}
			return nil
		}
		open[i] = opened{contestant{name: c.name}, dataSession(func(string) oneCall { return get })}
	}
	for _, l := range []level{{1, false, "1 goroutine"}, {64, false, "64 goroutines"}} {
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		for _, calls := range found {
			for i := range calls {
				calls[i] *= float64(batch)
			}
		}
		r := row{Measure: fmt.Sprintf("%s, %s: calls/s", text, l.label), Cells: found.cells(), Rounds: found}
		progress("%s, %s: %s × Once of go-redis/cache", text, l.label, figure(found.ratio(rcacheName, goCacheName)))
		if l.goroutines == 64 {
			for _, peer := range []string{goCacheName, goCacheGet, asideName} {
				r.Targets = append(r.Targets, atLeast("× "+peer, 1, found.ratio(rcacheName, peer)))
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// missTask is what one process does: its goroutines ask for one missing key after the other, at times that all processes share.
type missTask struct {
	Addr string `json:"addr"`
	Keys int    `json:"keys"` // for each contestant, by turns
}

// missResult is what a process saw of one key.
type missResult struct {
	Loads int           `json:"loads"` // that ran here
	Ended time.Duration `json:"ended"` // when a load returned here, 0 if none ran here, from the time on that all processes share
	Took  time.Duration `json:"took"`  // until the last caller had the value, likewise
}

// askForMissing is the task of a worker. It returns what it saw of each key.
func askForMissing(ctx context.Context, task missTask, ready func() time.Time) ([]missResult, error) {
	var load atomic.Pointer[loader] // of the key that all ask for
	all, err := openCaches(task.Addr, true, func(ctx context.Context) (string, error) { return (*load.Load())(ctx) },
		openRCache, openGoCache, openAside)
	if err != nil {
		return nil, err
	}
	for _, c := range all { // it connects
		value := loader(func(context.Context) (string, error) { return payload, nil })
		load.Store(&value)
		if _, err := c.get(ctx, "first"); err != nil {
			return nil, err
		}
	}
	start := ready()
	results := make([]missResult, len(all)*task.Keys)
	for i := range results {
		c, at := all[i%len(all)], start.Add(time.Duration(i)*missRound)
		time.Sleep(time.Until(at))
		r, err := callTogether(ctx, missCallers, missWork, func(ctx context.Context, key string, fn func(context.Context) (string, error)) (string, error) {
			load.Store((*loader)(&fn))
			return c.get(ctx, key)
		}, strconv.Itoa(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		results[i] = missResult{r.Runs, max(0, r.Ended.Sub(at)), r.Last.Sub(at)}
	}
	return results, closeCaches(all)
}

// missingRows measures how soon all callers of a key that is missing have its value.
func missingRows(ctx context.Context, b *bench) ([]row, error) {
	keys := 15
	if b.config.quick {
		keys = 5
	}
	pings, err := pingTimes(ctx, b.server.admin, 200)
	if err != nil {
		return nil, err
	}
	results, err := together[missTask, []missResult](ctx, "missing", missProcesses, missTask{b.server.addr, keys}, nil)
	if err != nil {
		return nil, err
	}
	names := []string{rcacheName, goCacheName, asideName}
	took, after, most := samples{}, samples{}, map[string]float64{}
	for i := range results[0] {
		name, loads, ended, last := names[i%len(names)], 0, time.Duration(0), time.Duration(0)
		for _, process := range results {
			loads += process[i].Loads
			ended, last = max(ended, process[i].Ended), max(last, process[i].Took)
		}
		most[name] = max(most[name], float64(loads))
		took.add(name, last.Seconds()*1000)
		after.add(name, (last-ended).Seconds()*1000)
	}
	prefix := fmt.Sprintf("a missing key, %d callers in %d processes: ", missProcesses*missCallers, missProcesses)
	loads := row{Measure: prefix + "loads of a key, most", Cells: map[string][]float64{}}
	times := row{Measure: prefix + "until the last has the value, median / worst, ms", Cells: map[string][]float64{}, Rounds: took}
	ends := row{Measure: prefix + "of that, after the last load, median, ms", Cells: after.cells(), Rounds: after}
	for name, values := range took {
		loads.Cells[name] = []float64{most[name]}
		times.Cells[name] = []float64{median(values), slices.Max(values)}
	}
	loads.Targets = []target{{Text: "exactly 1", Got: most[rcacheName], Reached: most[rcacheName] == 1}}
	times.Targets = []target{atMost("ms in the median: 55 and two PINGs", 55+2*median(pings), median(took[rcacheName]))}
	progress("a missing key: all have it after %s ms", figure(median(took[rcacheName])))
	return []row{loads, times, ends}, nil
}

// pingTimes returns the times of PINGs, one after the other, in ms.
func pingTimes(ctx context.Context, rdb *redis.Client, n int) (times []float64, err error) {
	for range n {
		start := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Seconds()*1000)
	}
	return times, nil
}
