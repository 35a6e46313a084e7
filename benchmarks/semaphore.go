package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/rsemaphore"
)

// semaphoreSession is a counting semaphore of redlatch's.
type semaphoreSession struct {
	*redlatchSession
	semaphore *rsemaphore.Semaphore
}

func openSemaphore(ctx context.Context, s setup) (session, error) {
	r, err := newRedlatch(s, reentrantLock)
	if err != nil {
		return nil, err
	}
	semaphore := r.client.GetSemaphore("counting:" + counterKey)
	if _, err := semaphore.TrySetPermits(ctx, s.Permits); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &semaphoreSession{r, semaphore}, nil
}

func (s *semaphoreSession) handle(string) handle { return semaphoreHandle{s.semaphore} }

type semaphoreHandle struct{ semaphore *rsemaphore.Semaphore }

func (h semaphoreHandle) Lock(ctx context.Context) error { return h.semaphore.Acquire(ctx, 1) }

func (h semaphoreHandle) Unlock(ctx context.Context) error { return h.semaphore.Release(ctx, 1) }

// permitSession is a semaphore of leased permits.
type permitSession struct {
	*redlatchSession
	semaphore *rsemaphore.PermitSemaphore
}

func openPermits(ctx context.Context, s setup) (session, error) {
	r, err := newRedlatch(s, reentrantLock)
	if err != nil {
		return nil, err
	}
	semaphore := r.client.GetPermitSemaphore("leased:" + counterKey)
	if _, err := semaphore.TrySetPermits(ctx, s.Permits); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &permitSession{r, semaphore}, nil
}

func (s *permitSession) handle(string) handle { return &permitHandle{semaphore: s.semaphore} }

type permitHandle struct {
	semaphore *rsemaphore.PermitSemaphore
	permit    *rsemaphore.Permit
}

func (h *permitHandle) Lock(ctx context.Context) (err error) {
	h.permit, err = h.semaphore.Acquire(ctx)
	return err
}

func (h *permitHandle) Unlock(ctx context.Context) error { return h.permit.Release(ctx) }

// enough is how many permits a semaphore has where nobody shall wait.
const enough = 1000

// semaphores measures semaphores of which all goroutines want the same one.
func semaphores(ctx context.Context, b *bench) ([]row, error) {
	rows, err := freeSemaphores(ctx, b)
	if err != nil {
		return nil, err
	}
	sent, err := permitCommands(ctx, b)
	if err != nil {
		return nil, err
	}
	own := []string{semaphoreName, permitName}
	contested, err := runContests(ctx, b, []contest{
		{
			label: "64 goroutines, 8 permits", processes: 1, goroutines: 64, permits: 8,
			names: append(own, counterName, inProcessName), own: own,
		},
		{
			label: "4 processes of 16, 8 permits", processes: 4, goroutines: 16, permits: 8,
			names: append(own, counterName), own: own,
		},
	})
	return append(append(rows, sent...), contested...), err
}

func freeSemaphores(ctx context.Context, b *bench) ([]row, error) {
	open, err := openAll(ctx, b, semaphoreName, permitName, counterName, inProcessName)
	if err != nil {
		return nil, err
	}
	defer closeAll(open)
	var rows []row
	for _, goroutines := range []int{1, 16, 64, 256} {
		l := level{goroutines: goroutines, label: plural(goroutines)}
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		progress("semaphore, %s: %s, floor %s pairs/s", l.label, figure(median(found[semaphoreName])), figure(median(found[counterName])))
		r := row{Measure: "enough permits, " + l.label + ": pairs/s", Cells: found.cells(), Rounds: found}
		if goroutines == 64 {
			r.Targets = []target{atLeast("× the floor", 1.6, found.ratio(semaphoreName, counterName))}
		}
		rows = append(rows, r, row{Measure: "enough permits, " + l.label + ": ratio to the floor", Cells: found.ratios(counterName)})
	}
	return rows, b.server.empty(ctx)
}

// permitCommands counts what a pair sends. Those of a counting semaphore that arrive together share a command.
func permitCommands(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, goroutines := range []int{1, 64} {
		r := row{
			Measure: "enough permits, " + plural(goroutines) + ": commands sent per pair",
			Cells:   make(map[string][]float64),
		}
		for _, c := range contestants(semaphoreName, permitName, counterName) {
			commands, err := commandsPerPair(ctx, b, c, goroutines)
			if err != nil {
				return nil, fmt.Errorf("count the commands of %s: %w", c.name, err)
			}
			r.Cells[c.name] = []float64{commands}
		}
		if goroutines == 1 {
			for _, name := range []string{semaphoreName, permitName} {
				sent := r.Cells[name][0]
				r.Targets = append(r.Targets, target{Text: "exactly 2, " + name, Got: sent, Reached: sent == 2})
			}
		}
		rows = append(rows, r)
	}
	return rows, b.server.empty(ctx)
}
