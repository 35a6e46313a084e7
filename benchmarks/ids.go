package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/rid"
)

// idSource is a way to make ids. next makes one.
type idSource struct {
	name string
	next func(ctx context.Context) error
}

// idSources returns the contestants, and a function that closes them.
func idSources(b *bench) ([]idSource, func() error, error) {
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, nil, err
	}
	rdb := newGoRedis(setup{Addr: b.server.addr})
	generator := s.client.GetIDGenerator("ids", rid.WithBlock(1000))
	timed := s.client.GetIDGenerator("timed", rid.WithBlock(1000), rid.WithTimePrefix(32))
	return []idSource{
		{idsName, nextOf(generator)},
		{timedIDsName, nextOf(timed)},
		{uuidName, func(context.Context) error {
			_, err := uuid.NewV7()
			return err
		}},
		{incrName, incrOf(rdb)},
	}, func() error { return errors.Join(s.close(), rdb.Close()) }, nil
}

func nextOf(g *rid.Generator) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := g.Next(ctx)
		return err
	}
}

func incrOf(rdb *redis.Client) func(context.Context) error {
	return func(ctx context.Context) error { return rdb.Incr(ctx, "incr").Err() }
}

// ids measures how many ids one process makes.
func ids(ctx context.Context, b *bench) ([]row, error) {
	sources, closeSources, err := idSources(b)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, goroutines := range []int{1, 16, 64} {
		found := samples{}
		for round := range b.rounds {
			for _, s := range rotated(sources, round) {
				n, err := idsPerSecond(ctx, s, goroutines, b.window)
				if err != nil {
					return nil, errors.Join(err, closeSources())
				}
				found.add(s.name, n)
			}
		}
		progress("ids, %s: %s/s", plural(goroutines), figure(median(found[idsName])))
		rows = append(rows, row{
			Measure: "ids, " + plural(goroutines) + ": ids/s",
			Cells:   found.cells(), Rounds: found,
			Targets: []target{atLeast("ids/s", 10_000_000, median(found[idsName]))},
		})
	}
	return rows, errors.Join(closeSources(), b.server.empty(ctx))
}

// idsPerSecond has goroutines make ids for a window. They count by themselves, which else would cost as much as an id.
func idsPerSecond(ctx context.Context, s idSource, goroutines int, window time.Duration) (float64, error) {
	ctx = context.WithoutCancel(ctx)
	if err := s.next(ctx); err != nil { // connected
		return 0, err
	}
	var made atomic.Int64
	var stop atomic.Bool
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	start := time.Now()
	for range goroutines {
		running.Go(func() {
			n := int64(0)
			for ; !stop.Load(); n++ {
				if err := s.next(ctx); err != nil {
					failed.Store(&err)
					break
				}
			}
			made.Add(n)
		})
	}
	time.Sleep(window)
	stop.Store(true)
	running.Wait()
	took := time.Since(start)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(made.Load()) / took.Seconds(), nil
}
