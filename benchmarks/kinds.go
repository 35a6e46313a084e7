package main

import (
	"context"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// openKind opens redlatch with another kind of lock than the reentrant one.
func openKind(lock lockOf) func(context.Context, setup) (session, error) {
	return func(_ context.Context, s setup) (session, error) { return newRedlatch(s, lock) }
}

func fairLock(c *redlatch.Client, key string) rlock.Locker { return c.GetFairLock(key) }

func readLock(c *redlatch.Client, key string) rlock.Locker {
	return c.GetReadWriteLock(key).RLocker()
}

func writeLock(c *redlatch.Client, key string) rlock.Locker { return c.GetReadWriteLock(key) }

func multiLock(c *redlatch.Client, key string) rlock.Locker {
	return c.GetMultiLock(c.GetLock(key+":1"), c.GetLock(key+":2"), c.GetLock(key+":3"))
}

func readersOfOne(c *redlatch.Client, _ string) rlock.Locker { return readLock(c, "shared") }

// kinds measures all kinds of lock beside the reentrant one.
func kinds(ctx context.Context, b *bench) ([]row, error) {
	open, err := openAll(ctx, b, redlatchName, fairName, readName, writeName, multiName, readersName)
	if err != nil {
		return nil, err
	}
	defer closeAll(open)
	var rows []row
	for _, goroutines := range []int{1, 16, 64} {
		l := level{goroutines: goroutines, label: plural(goroutines)}
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		progress("kinds, %s: reentrant %s, fair %s, readers %s pairs/s", l.label,
			figure(median(found[redlatchName])), figure(median(found[fairName])), figure(median(found[readersName])))
		rows = append(rows,
			row{Measure: "uncontended, " + l.label + ": pairs/s", Cells: found.cells(), Rounds: found},
			row{Measure: "uncontended, " + l.label + ": ratio to the reentrant lock", Cells: found.ratios(redlatchName), Targets: l.kindTargets(found)})
	}
	if err := b.server.empty(ctx); err != nil {
		return nil, err
	}
	contested, err := runContests(ctx, b, []contest{{
		label: "contended, 4 processes of 8", processes: 4, goroutines: 8,
		names: []string{redlatchName, fairName, writeName, readName}, own: []string{redlatchName, fairName, writeName},
	}})
	return append(rows, contested...), err
}

func (l level) kindTargets(found samples) []target {
	targets := []target{atLeast("× reentrant, fair", 0.8, found.ratio(fairName, redlatchName))}
	if l.goroutines == 64 {
		targets = append(targets, atLeast("× reentrant with a key each, 64 readers of one lock", 0.7, found.ratio(readersName, redlatchName)))
	}
	return targets
}

// ratios returns each contestant's ratio to one of them.
func (s samples) ratios(to string) map[string][]float64 {
	cells := make(map[string][]float64, len(s))
	for name := range s {
		cells[name] = []float64{s.ratio(name, to)}
	}
	return cells
}
