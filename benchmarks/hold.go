package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// holdTask is a process that takes many locks and keeps them.
type holdTask struct {
	Contestant string        `json:"contestant"`
	Setup      setup         `json:"setup"`
	Holds      int           `json:"holds"`
	Observe    time.Duration `json:"observe"`
}

// holdResult is what that cost it.
type holdResult struct {
	Bytes         float64       `json:"bytes"`            // heap for each hold
	BytesWithDone float64       `json:"bytes_with_done"`  // the same, once Done was asked for
	Goroutines    int           `json:"goroutines_added"` // the most seen, beyond those that a single hold needs
	Sent          int64         `json:"sent"`
	CPU           time.Duration `json:"cpu"`
}

// keeper is a handle that keeps less of a hold than itself: what a user would.
type keeper interface{ kept() any }

// asker is a session whose holds have a context. doneOf takes what was kept of one.
type asker interface {
	doneOf(hold any) <-chan struct{}
}

// holdMany is the task of a holding worker.
func holdMany(ctx context.Context, task holdTask, ready func() time.Time) (holdResult, error) {
	counter := &sent{}
	task.Setup.Sent = counter
	s, err := contestants(task.Contestant)[0].open(ctx, task.Setup)
	if err != nil {
		return holdResult{}, err
	}
	holds, dones := make([]any, task.Holds), make([]<-chan struct{}, task.Holds)
	// The connections, with their buffers, and whatever a library keeps ready for many callers are not counted as the holds'.
	if err := inParallel(ctx, s, takers, 50); err != nil {
		return holdResult{}, err
	}
	if err := s.handle("idle:first").Lock(ctx); err != nil {
		return holdResult{}, err
	}
	goroutines, empty := runtime.NumGoroutine(), heap()
	if err := takeAll(ctx, s, holds); err != nil {
		return holdResult{}, err
	}
	result := holdResult{Bytes: float64(heap()-empty) / float64(task.Holds)}
	time.Sleep(task.Setup.Lease * 2 / 3) // by then everything has been renewed at least once, and renewal is in its steady state

	time.Sleep(time.Until(ready()))
	goroutines++ // the watcher that ready starts
	before, cpu := counter.count(), cpuTime()
	result.Goroutines = mostGoroutines(task.Observe) - goroutines
	result.Sent, result.CPU = counter.count()-before, cpuTime()-cpu

	if a, ok := s.(asker); ok {
		for i, hold := range holds {
			dones[i] = a.doneOf(hold)
		}
	}
	result.BytesWithDone = float64(heap()-empty) / float64(task.Holds)
	runtime.KeepAlive(holds)
	runtime.KeepAlive(dones)
	return result, nil
}

// takers is how many goroutines take the locks.
const takers = 256

// takeAll fills holds, with many goroutines that are gone when it returns.
func takeAll(ctx context.Context, s session, holds []any) error {
	ctx = context.WithoutCancel(ctx)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range takers {
		running.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(holds) && failed.Load() == nil; i = next.Add(1) - 1 {
				h := s.handle(fmt.Sprintf("idle:%d", i))
				if err := h.Lock(ctx); err != nil {
					failed.Store(&err)
					return
				}
				holds[i] = h
				if k, ok := h.(keeper); ok {
					holds[i] = k.kept()
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func mostGoroutines(observe time.Duration) (most int) {
	for end := time.Now().Add(observe); time.Now().Before(end); {
		time.Sleep(min(50*time.Millisecond, time.Until(end)))
		most = max(most, runtime.NumGoroutine())
	}
	return most
}

// heap returns the bytes that are reachable. The second collection sweeps what finalizers and pools held in the first.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpuTime is this process's, in user and system mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
