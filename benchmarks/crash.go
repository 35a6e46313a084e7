package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	crashPermits   = 8 // of each of two semaphores
	crashProcesses = 2
	watchedName    = "watched" // the semaphore whose permits are only looked at
	wantedName     = "wanted"  // that of which somebody waits for all permits
)

// permitTask is a process that takes permits and keeps them until it is killed.
type permitTask struct {
	Addr    string        `json:"addr"`
	Lease   time.Duration `json:"lease"`
	Permits int           `json:"permits"`
}

// holdPermits is the task of a worker that is killed. It is ready when it has its permits of both semaphores.
func holdPermits(ctx context.Context, task permitTask, ready func() time.Time) (int, error) {
	s, err := newRedlatch(setup{Addr: task.Addr, Lease: task.Lease}, reentrantLock)
	if err != nil {
		return 0, err
	}
	for _, name := range []string{watchedName, wantedName} {
		if _, err := s.client.GetPermitSemaphore(name).AcquireN(ctx, task.Permits); err != nil {
			return 0, err
		}
	}
	ready()
	return task.Permits, nil
}

// crash measures how long permits are gone whose holders were all killed.
func crash(ctx context.Context, b *bench) ([]row, error) {
	length, rounds := 1500*time.Millisecond, 4
	if b.config.quick {
		length, rounds = time.Second, 2
	}
	var back, acquired []float64
	for round := range rounds {
		// They are killed at different times since the last renewal.
		r, err := killHolders(ctx, b, length, length+length/3*time.Duration(round)/time.Duration(rounds))
		if err != nil {
			return nil, err
		}
		back, acquired = append(back, r.back.Seconds()*1000), append(acquired, r.acquired.Seconds()*1000)
	}
	progress("kill -9 of all permit holders: full capacity back after %s ms", figure(slices.Max(back)))
	limit := float64(length.Milliseconds() + 200)
	prefix := fmt.Sprintf("kill -9 of all holders of %d permits, %s lease: ", crashPermits, length)
	return []row{
		{
			Measure: prefix + "full capacity available, median / worst, ms",
			Cells:   map[string][]float64{permitName: {median(back), slices.Max(back)}},
			Rounds:  samples{permitName: back},
			Targets: []target{atMost("ms (lease + 200 ms), worst", limit, slices.Max(back))},
		},
		{
			Measure: prefix + "a waiter has all of them, median / worst, ms",
			Cells:   map[string][]float64{permitName: {median(acquired), slices.Max(acquired)}},
			Rounds:  samples{permitName: acquired},
			Targets: []target{atMost("ms (lease + 200 ms), worst", limit, slices.Max(acquired))},
		},
	}, nil
}

// recovery is how long after the kill all permits were there again, and a waiter that wanted them all had them.
type recovery struct{ back, acquired time.Duration }

func killHolders(ctx context.Context, b *bench, length, held time.Duration) (r recovery, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: length}, reentrantLock)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close(), b.server.empty(ctx)) }()
	watched, wanted := s.client.GetPermitSemaphore(watchedName), s.client.GetPermitSemaphore(wantedName)
	if err := errors.Join(watched.SetPermits(ctx, crashPermits), wanted.SetPermits(ctx, crashPermits)); err != nil {
		return r, err
	}
	workers, err := startHolders(ctx, b, length)
	defer func() { endAll(workers) }()
	if err != nil {
		return r, err
	}
	acquired := make(chan error, 1)
	var at time.Time
	go func() { // ends with ctx at the latest; the receive below waits for it
		permits, err := wanted.AcquireN(ctx, crashPermits)
		at = time.Now()
		for _, p := range permits {
			err = errors.Join(err, p.Release(ctx))
		}
		acquired <- err
	}()
	time.Sleep(held) // renewed meanwhile, or the waiter has the permits before the kill
	killed := time.Now()
	endAll(workers)
	err = within(ctx, 10*time.Second, 2*time.Millisecond, "wait for the permits", func(ctx context.Context) (bool, error) {
		n, err := watched.Available(ctx)
		return n == crashPermits, err
	})
	r.back = time.Since(killed)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-acquired)
	r.acquired = at.Sub(killed)
	if err == nil && min(r.back, r.acquired) < length/4 {
		err = fmt.Errorf("permits were back %s after the kill of their holders, who did not keep them", min(r.back, r.acquired))
	}
	return r, err
}

// startHolders returns workers that hold all permits.
func startHolders(ctx context.Context, b *bench, length time.Duration) (workers []*worker, err error) {
	for range crashProcesses {
		w, err := startWorker(ctx, "permits", permitTask{b.server.addr, length, crashPermits / crashProcesses})
		if err != nil {
			return workers, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if err := w.awaitReady(); err != nil {
			return workers, err
		}
	}
	return workers, nil
}
