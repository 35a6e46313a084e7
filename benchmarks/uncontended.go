package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// level is a number of goroutines that lock and unlock a key of their own each.
type level struct {
	goroutines int
	canEnd     bool // whether the context given to Lock can end
	label      string
}

func levels() []level {
	return []level{
		{1, false, "1 goroutine, context that cannot end"},
		{1, true, "1 goroutine, context that can end"},
		{16, false, "16 goroutines"},
		{64, false, "64 goroutines"},
		{256, false, "256 goroutines"},
	}
}

func plural(goroutines int) string {
	if goroutines == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", goroutines)
}

// opened is a contestant with its connection.
type opened struct {
	contestant
	session session
}

// uncontended measures pairs of Lock and Unlock per second, where nobody else wants the lock.
func uncontended(ctx context.Context, b *bench) ([]row, error) {
	open, err := openAll(ctx, b, redlatchName, rawName, plainName, autoName, bsmName, redsyncName, rueidisName)
	if err != nil {
		return nil, err
	}
	defer closeAll(open)
	var rows []row
	for _, l := range levels() {
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		progress("uncontended, %s: redlatch %s pairs/s", l.label, figure(median(found[redlatchName])))
		rows = append(rows, row{
			Measure: "uncontended, " + l.label + ": pairs/s",
			Cells:   found.cells(), Rounds: found, Targets: l.targets(found),
		})
	}
	return rows, b.server.empty(ctx)
}

// measure has the contestants take turns, round by round.
func (l level) measure(ctx context.Context, b *bench, open []opened) (samples, error) {
	found := samples{}
	for round := range b.rounds {
		for _, o := range rotated(open, round) {
			pairs, err := pairsPerSecond(ctx, o.session, l, b.window)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", o.name, l.label, err)
			}
			found.add(o.name, pairs)
		}
	}
	return found, nil
}

func openAll(ctx context.Context, b *bench, names ...string) ([]opened, error) {
	var open []opened
	for _, c := range contestants(names...) {
		// Tracking costs rueidislock throughput and gains nothing where nobody waits.
		s, err := c.open(ctx, setup{Addr: b.server.addr, Lease: lease, Retry: time.Second, NoTracking: true, Permits: enough})
		if err != nil {
			closeAll(open)
			return nil, fmt.Errorf("open %s: %w", c.name, err)
		}
		open = append(open, opened{c, s})
	}
	return open, nil
}

func closeAll(open []opened) {
	for _, o := range open {
		if err := o.session.close(); err != nil {
			progress("close %s: %v", o.name, err)
		}
	}
}

// ownKey returns the key of a goroutine.
func ownKey(g int) string { return fmt.Sprintf("own:%d", g) }

// pairsPerSecond runs the level for a window, after a quarter of one to warm up.
func pairsPerSecond(ctx context.Context, s session, l level, window time.Duration) (float64, error) {
	if l.canEnd {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	var pairs atomic.Int64
	var stop atomic.Bool
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for g := range l.goroutines {
		h := s.handle(ownKey(g))
		running.Go(func() {
			for !stop.Load() {
				if err := lockUnlock(ctx, h); err != nil {
					failed.Store(&err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	time.Sleep(window / 4)
	before, start := pairs.Load(), time.Now()
	time.Sleep(window)
	done, took := pairs.Load()-before, time.Since(start)
	stop.Store(true)
	running.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(done) / took.Seconds(), nil
}

func lockUnlock(ctx context.Context, h handle) error {
	if err := h.Lock(ctx); err != nil {
		return err
	}
	return h.Unlock(ctx)
}

func (l level) targets(found samples) []target {
	floor := map[int]float64{1: 0.90, 16: 1.2, 64: 1.8, 256: 2.8}[l.goroutines]
	if l.canEnd {
		floor = 0.80
	}
	targets := []target{atLeast("× raw floor", floor, found.ratio(redlatchName, rawName))}
	peers := map[int]float64{64: 2.0, 256: 2.5}[l.goroutines]
	if peers == 0 {
		return targets
	}
	rueidis := map[int]float64{64: 1.2, 256: 1.5}[l.goroutines]
	return append(targets,
		atLeast("× bsm/redislock", peers, found.ratio(redlatchName, bsmName)),
		atLeast("× redsync", peers, found.ratio(redlatchName, redsyncName)),
		atLeast("× rueidislock", rueidis, found.ratio(redlatchName, rueidisName)))
}
