package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/grid/rsortedset"
)

const (
	benchMap    = "map"
	benchNear   = "near"
	benchSet    = "set"
	benchSorted = "sorted"
	nearBatch   = 100 // hits that are counted together: each takes less than counting it
)

// dataCall is a call on data, and the same one of go-redis and of Redisson. Each goroutine has a key, field or member of its own.
type dataCall struct {
	name     string
	redisson string                   // its name in Load.java
	batch    int                      // calls in one of oneCall
	ours     func(key string) oneCall // of redlatch
	plain    func(key string) oneCall // of go-redis; nil if it has nothing of the kind
}

func dataCalls(c *redlatch.Client, rdb *redis.Client) []dataCall {
	m, s, sorted := rmap.New[string, string](c, benchMap), rset.New[string](c, benchSet), rsortedset.New[string](c, benchSorted)
	near := rmap.New[string, string](c, benchNear, rmap.WithNear(10_000), rmap.WithMaxStale(time.Hour))
	return []dataCall{
		{
			"rbucket, Set", "bucket.set", 1,
			func(key string) oneCall {
				b := rbucket.New[string](c, key)
				return func(ctx context.Context) error { return b.Set(ctx, payload) }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.Set(ctx, key, payload, 0).Err() }
			},
		},
		{
			"rbucket, Get", "bucket.get", 1,
			func(key string) oneCall {
				b := rbucket.New[string](c, key)
				return func(ctx context.Context) error { _, ok, err := b.Get(ctx); return found(ok, err) }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.Get(ctx, key).Err() }
			},
		},
		{
			"rmap, Set", "map.set", 1,
			func(key string) oneCall {
				return func(ctx context.Context) error { return m.Set(ctx, key, payload) }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.HSet(ctx, benchMap, key, payload).Err() }
			},
		},
		{
			"rmap, Get", "map.get", 1,
			func(key string) oneCall {
				return func(ctx context.Context) error { _, ok, err := m.Get(ctx, key); return found(ok, err) }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.HGet(ctx, benchMap, key).Err() }
			},
		},
		{
			"ratomic, Add", "atomic.add", 1,
			func(key string) oneCall {
				n := ratomic.NewInt64(c, "number:"+key)
				return func(ctx context.Context) error { _, err := n.Add(ctx, 1); return err }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.IncrBy(ctx, "number:"+key, 1).Err() }
			},
		},
		{
			"rset, Has", "set.has", 1,
			func(key string) oneCall {
				return func(ctx context.Context) error { ok, err := s.Has(ctx, key); return found(ok, err) }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.SIsMember(ctx, benchSet, key).Err() }
			},
		},
		{
			"rsortedset, Add", "sorted.add", 1,
			func(key string) oneCall {
				return func(ctx context.Context) error { _, err := sorted.Add(ctx, key, 1); return err }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error {
					return rdb.ZAdd(ctx, benchSorted, redis.Z{Score: 1, Member: key}).Err()
				}
			},
		},
		{
			"rsortedset, Score", "sorted.score", 1,
			func(key string) oneCall {
				return func(ctx context.Context) error { _, ok, err := sorted.Score(ctx, key); return found(ok, err) }
			},
			func(key string) oneCall {
				return func(ctx context.Context) error { return rdb.ZScore(ctx, benchSorted, key).Err() }
			},
		},
		{
			"rmap with near entries, Set", "near.set", 1,
			func(key string) oneCall {
				return func(ctx context.Context) error { return near.Set(ctx, key, payload) }
			},
			nil,
		},
		{
			"rmap with near entries, Get", "near.get", nearBatch,
			func(key string) oneCall {
				return func(ctx context.Context) error {
					for range nearBatch {
						if _, ok, err := near.Get(ctx, key); found(ok, err) != nil {
							return found(ok, err)
						}
					}
					return nil
				}
			},
			nil,
		},
	}
}

// found is an error if nothing was.
func found(ok bool, err error) error {
	if err == nil && !ok {
		err = errors.New("nothing is there")
	}
	return err
}

// dataSession is a contestant that makes one kind of call.
type dataSession func(key string) oneCall

func (s dataSession) handle(key string) handle { return s(key) }

func (dataSession) close() error { return nil }

// grid measures calls on data, beside those of go-redis.
func grid(ctx context.Context, b *bench) ([]row, error) {
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	rdb := newGoRedis(setup{Addr: b.server.addr})
	rows, err := gridRows(ctx, b, s.client, rdb)
	return rows, errors.Join(err, s.close(), rdb.Close(), b.server.empty(ctx))
}

func gridRows(ctx context.Context, b *bench, client *redlatch.Client, rdb *redis.Client) (rows []row, err error) {
	for _, c := range dataCalls(client, rdb) {
		if c.plain == nil {
			continue
		}
		open := []opened{{contestant{name: gridName}, dataSession(c.ours)}, {contestant{name: goRedisName}, dataSession(c.plain)}}
		for _, l := range levels() {
			if err := fillData(ctx, rdb, l.goroutines); err != nil {
				return nil, err
			}
			found, err := l.measure(ctx, b, open)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			ratio := found.ratio(gridName, goRedisName)
			progress("%s, %s: %s × go-redis", c.name, l.label, figure(ratio))
			goal := map[int]float64{1: 0.85, 16: 2, 64: 2.5, 256: 2.5}[l.goroutines]
			rows = append(rows, row{
				Measure: c.name + ", " + l.label + ": calls/s", Cells: found.cells(), Rounds: found,
				Targets: []target{atLeast("× go-redis", goal, ratio)},
			})
		}
	}
	return rows, nil
}

// fillData writes what the goroutines look for.
func fillData(ctx context.Context, rdb *redis.Client, goroutines int) error {
	for g := range goroutines {
		key := ownKey(g)
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, key, payload, 0)
			p.HSet(ctx, benchMap, key, payload)
			p.SAdd(ctx, benchSet, key)
			p.ZAdd(ctx, benchSorted, redis.Z{Score: 1, Member: key})
			p.HSet(ctx, benchNear, key, payload)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
