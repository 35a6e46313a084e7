package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
)

const (
	benchMap = "map"
	benchSet = "set"
)

// dataCall is a call on data, and the same one of go-redis. Each goroutine has a key, field or member of its own.
type dataCall struct {
	name  string
	ours  func(c *redlatch.Client, key string) oneCall
	plain func(rdb *redis.Client, key string) oneCall
}

func dataCalls() []dataCall {
	bucket := func(c *redlatch.Client, key string) *rbucket.Bucket[string] { return rbucket.New[string](c, key) }
	entries := func(c *redlatch.Client) *rmap.Map[string, string] { return rmap.New[string, string](c, benchMap) }
	return []dataCall{
		{
			"rbucket, Set",
			func(c *redlatch.Client, key string) oneCall {
				b := bucket(c, key)
				return func(ctx context.Context) error { return b.Set(ctx, payload) }
			},
			func(rdb *redis.Client, key string) oneCall {
				return func(ctx context.Context) error { return rdb.Set(ctx, key, payload, 0).Err() }
			},
		},
		{
			"rbucket, Get",
			func(c *redlatch.Client, key string) oneCall {
				b := bucket(c, key)
				return func(ctx context.Context) error { _, ok, err := b.Get(ctx); return found(ok, err) }
			},
			func(rdb *redis.Client, key string) oneCall {
				return func(ctx context.Context) error { return rdb.Get(ctx, key).Err() }
			},
		},
		{
			"rmap, Set",
			func(c *redlatch.Client, key string) oneCall {
				m := entries(c)
				return func(ctx context.Context) error { return m.Set(ctx, key, payload) }
			},
			func(rdb *redis.Client, key string) oneCall {
				return func(ctx context.Context) error { return rdb.HSet(ctx, benchMap, key, payload).Err() }
			},
		},
		{
			"rmap, Get",
			func(c *redlatch.Client, key string) oneCall {
				m := entries(c)
				return func(ctx context.Context) error { _, ok, err := m.Get(ctx, key); return found(ok, err) }
			},
			func(rdb *redis.Client, key string) oneCall {
				return func(ctx context.Context) error { return rdb.HGet(ctx, benchMap, key).Err() }
			},
		},
		{
			"ratomic, Add",
			func(c *redlatch.Client, key string) oneCall {
				n := ratomic.NewInt64(c, "number:"+key)
				return func(ctx context.Context) error { _, err := n.Add(ctx, 1); return err }
			},
			func(rdb *redis.Client, key string) oneCall {
				return func(ctx context.Context) error { return rdb.IncrBy(ctx, "number:"+key, 1).Err() }
			},
		},
		{
			"rset, Has",
			func(c *redlatch.Client, key string) oneCall {
				s := rset.New[string](c, benchSet)
				return func(ctx context.Context) error { ok, err := s.Has(ctx, key); return found(ok, err) }
			},
			func(rdb *redis.Client, key string) oneCall {
				return func(ctx context.Context) error { return rdb.SIsMember(ctx, benchSet, key).Err() }
			},
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
	for _, c := range dataCalls() {
		open := []opened{
			{contestant{name: gridName}, dataSession(func(key string) oneCall { return c.ours(client, key) })},
			{contestant{name: goRedisName}, dataSession(func(key string) oneCall { return c.plain(rdb, key) })},
		}
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
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
