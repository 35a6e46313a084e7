package main

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
)

const (
	nearEntries  = 5000
	nearWrites   = time.Millisecond // from one write to the next
	hitsMeasured = 1_000_000
)

// point is a value without pointers.
type point struct {
	ID   int64
	Name string
	X, Y float64
}

// nearHits measures reads of entries that are kept in the client.
func nearHits(ctx context.Context, b *bench) ([]row, error) {
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	rows, err := hitRows(ctx, b, s.client)
	if err == nil {
		var written []row
		written, err = writtenRows(ctx, b, s.client)
		rows = append(rows, written...)
	}
	return rows, errors.Join(err, s.close(), b.server.empty(ctx))
}

// hitRows measures single hits on one goroutine.
func hitRows(ctx context.Context, b *bench, client *redlatch.Client) ([]row, error) {
	if err := rmap.New[int, point](client, "points").SetAll(ctx, points()); err != nil {
		return nil, err
	}
	kept := []rmap.Option{rmap.WithNear(2 * nearEntries), rmap.WithMaxStale(time.Hour)}
	plain := rmap.New[int, point](client, "points", kept...)
	shared := rmap.New[int, *point](client, "points", append(kept, rmap.WithSharedValues())...)
	loaded := rcache.New(client, "points", func(_ context.Context, i int) (point, error) { return points()[i], nil },
		rcache.WithNear(2*nearEntries), rcache.WithMaxStale(time.Hour))
	reads := []struct {
		name string
		read func(ctx context.Context, i int) error
	}{
		{"rmap, a type without pointers", func(ctx context.Context, i int) error { _, ok, err := plain.Get(ctx, i); return found(ok, err) }},
		{"rmap, shared values", func(ctx context.Context, i int) error { _, ok, err := shared.Get(ctx, i); return found(ok, err) }},
		{"rcache, a type without pointers", func(ctx context.Context, i int) error { _, err := loaded.Get(ctx, i); return err }},
	}
	ctx, cancel := context.WithCancel(ctx) // as that of a request
	defer cancel()
	var rows []row
	for _, r := range reads {
		wall, cpu, mallocs := samples{}, samples{}, samples{}
		for round := range 1 + b.rounds {
			hit, err := measureHits(ctx, r.read)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first one reads from Redis
				wall.add(gridName, hit[0])
				cpu.add(gridName, hit[1])
				mallocs.add(gridName, hit[2])
			}
		}
		at := []float64{median(wall[gridName]), median(cpu[gridName]), median(mallocs[gridName])}
		progress("near hit, %s: %s ns", r.name, figure(at[0]))
		rows = append(rows, row{
			Measure: "near hit, " + r.name + ": ns / ns of CPU / allocations", Cells: map[string][]float64{gridName: at}, Rounds: wall,
			Targets: []target{atMost("ns of CPU", 200, at[1]), atMost("allocations", 0.01, at[2])},
		})
	}
	return rows, nil
}

func points() map[int]point {
	all := make(map[int]point, nearEntries)
	for i := range nearEntries {
		all[i] = point{int64(i), "tea", 1, 2}
	}
	return all
}

// measureHits returns what a read costs: ns, ns of the process's CPU, and allocations.
func measureHits(ctx context.Context, read func(ctx context.Context, i int) error) (cost [3]float64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, start := cpuTime(), time.Now()
	for i := range hitsMeasured {
		if err := read(ctx, i%nearEntries); err != nil {
			return cost, err
		}
	}
	took, cpu := time.Since(start), cpuTime()-used
	runtime.ReadMemStats(&after)
	return [3]float64{
		float64(took) / hitsMeasured, float64(cpu) / hitsMeasured, float64(after.Mallocs-before.Mallocs) / hitsMeasured,
	}, nil
}

// writtenRows measures reads while another client writes 1,000 entries a second, beside those of a cache that does not learn of it.
func writtenRows(ctx context.Context, b *bench, client *redlatch.Client) (rows []row, err error) {
	writer, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, writer.close()) }()
	ignorant := expirable.NewLRU[int, point](2*nearEntries, nil, time.Hour)
	for i, p := range points() {
		ignorant.Add(i, p)
	}
	read := map[string]*rmap.Map[int, point]{}
	for _, name := range []string{"written", "quiet"} {
		read[name] = rmap.New[int, point](client, name, rmap.WithNear(2*nearEntries), rmap.WithMaxStale(time.Hour))
		if err := keepAll(ctx, read[name]); err != nil {
			return nil, err
		}
	}
	hit := func(name string) func(ctx context.Context, i int) error {
		return func(ctx context.Context, i int) error { _, ok, err := read[name].Get(ctx, i); return found(ok, err) }
	}
	sides := []struct {
		name, written string // the map that is written
		read          func(ctx context.Context, i int) error
	}{
		{gridName, "written", hit("written")},
		{quietName, "other", hit("quiet")},
		{ignorantName, "other", func(_ context.Context, i int) error { _, ok := ignorant.Get(i); return found(ok, nil) }},
	}
	for _, l := range []level{{1, false, "1 goroutine"}, {64, false, "64 goroutines"}} {
		reads := samples{}
		for round := range b.rounds {
			for _, side := range rotated(sides, round) {
				written := rmap.New[int, point](writer.client, side.written, rmap.WithNear(0))
				calls, err := readUnderWriter(ctx, l, b.window, side.read, written)
				if err != nil {
					return nil, err
				}
				reads.add(side.name, calls)
			}
		}
		ratio := reads.ratio(gridName, ignorantName)
		progress("reads under a writer, %s: %s × a cache that does not learn of it, %s × entries that nobody writes", l.label,
			figure(ratio), figure(reads.ratio(gridName, quietName)))
		rows = append(rows, row{
			Measure: "reads under a writer, " + l.label + ": calls/s", Cells: reads.cells(), Rounds: reads,
			Targets: []target{atLeast("× "+ignorantName, 0.75, ratio)},
		})
	}
	return rows, nil
}

// keepAll writes the entries of a map, and has the client keep all of them.
func keepAll(ctx context.Context, m *rmap.Map[int, point]) error {
	if err := m.SetAll(ctx, points()); err != nil {
		return err
	}
	keys := slices.Collect(maps.Keys(points()))
	return within(ctx, 10*time.Second, 10*time.Millisecond, "entries near", func(ctx context.Context) (bool, error) {
		_, err := m.GetAll(ctx, keys)
		return m.NearStats().Entries >= len(keys), err
	})
}

// readUnderWriter returns how many reads all goroutines make in a second.
func readUnderWriter(ctx context.Context, l level, window time.Duration, read func(ctx context.Context, i int) error,
	written *rmap.Map[int, point],
) (calls float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(nearWrites)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = written.Set(ctx, rand.IntN(nearEntries), point{Name: "milk"}) // it counts no less if it fails at the end
			}
		}
	})
	many := func(ctx context.Context) error {
		from := rand.IntN(nearEntries)
		for i := range nearBatch {
			if err := read(ctx, (from+i)%nearEntries); err != nil {
				return err
			}
		}
		return nil
	}
	calls, err = pairsPerSecond(ctx, dataSession(func(string) oneCall { return many }), l, window)
	cancel()
	writing.Wait()
	return calls * nearBatch, err
}
