package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// latchTask is what one process does of a latch's opening.
type latchTask struct {
	Addr    string `json:"addr"`
	Waiters int    `json:"waiters"`
	Rounds  int    `json:"rounds"` // a latch each
}

// awaitLatches is the task of a worker whose goroutines await one latch after the other. It returns when the last of them
// went on, by the clock that all processes share, for each latch.
func awaitLatches(ctx context.Context, task latchTask, ready func() time.Time) ([]time.Time, error) {
	s, err := newRedlatch(setup{Addr: task.Addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(ready()))
	last := make([]time.Time, task.Rounds)
	for round := range last {
		var mu sync.Mutex // guards last and err
		var running sync.WaitGroup
		l := s.client.GetCountDownLatch(latchName(round))
		for range task.Waiters {
			running.Go(func() {
				awaited := l.Await(ctx)
				returned := time.Now()
				mu.Lock()
				defer mu.Unlock()
				if awaited != nil {
					err = awaited
				}
				if returned.After(last[round]) {
					last[round] = returned
				}
			})
		}
		running.Wait()
		if err != nil {
			return nil, err
		}
	}
	return last, s.close()
}

func latchName(round int) string { return "latch:" + strconv.Itoa(round) }

// latch measures the time from the last CountDown to the return of the last Await.
func latch(ctx context.Context, b *bench) ([]row, error) {
	const processes, waiters = 10, 100
	rounds := 10
	if b.config.quick {
		rounds = 3
	}
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	defer closeAll([]opened{{contestant{name: redlatchName}, s}})
	for round := range rounds {
		if _, err := s.client.GetCountDownLatch(latchName(round)).TrySetCount(ctx, 2); err != nil {
			return nil, err
		}
	}
	var counted []time.Time
	var pings []float64
	results, err := together[latchTask, []time.Time](ctx, "latch", processes, latchTask{b.server.addr, waiters, rounds}, func() error {
		counted, pings, err = openLatches(ctx, b, s, rounds, processes)
		return err
	})
	if err != nil {
		return nil, err
	}
	var took []float64 // ms
	for round, at := range counted {
		last := slices.MaxFunc(results, func(a, b []time.Time) int { return a[round].Compare(b[round]) })[round]
		took = append(took, last.Sub(at).Seconds()*1000)
	}
	return latchRows(took, pings), b.server.empty(ctx)
}

// openLatches counts each latch down once everybody awaits it, and returns when the last CountDown was called. Meanwhile it measures
// PINGs, in ms.
func openLatches(ctx context.Context, b *bench, s *redlatchSession, rounds, processes int) (counted []time.Time, pings []float64, err error) {
	for round := range rounds {
		l := s.client.GetCountDownLatch(latchName(round))
		if err := l.CountDown(ctx); err != nil {
			return nil, nil, err
		}
		if err := awaitListeners(ctx, b.server.admin, round, processes); err != nil {
			return nil, nil, err
		}
		for range 20 {
			start := time.Now()
			if err := s.rdb.Ping(ctx).Err(); err != nil {
				return nil, nil, err
			}
			pings = append(pings, time.Since(start).Seconds()*1000)
		}
		counted = append(counted, time.Now())
		if err := l.CountDown(ctx); err != nil {
			return nil, nil, err
		}
	}
	return counted, pings, nil
}

// awaitListeners waits until all processes listen to the latch, and a moment for the rest of their goroutines. One that comes too late
// all the same makes the time longer, not shorter.
func awaitListeners(ctx context.Context, admin *redis.Client, round, processes int) error {
	channel := "redisson_countdownlatch__channel__{" + latchName(round) + "}" // as the wire format has it
	err := within(ctx, 20*time.Second, 5*time.Millisecond, "wait for the listeners", func(ctx context.Context) (bool, error) {
		heard, err := admin.PubSubNumSub(ctx, channel).Result()
		return int(heard[channel]) == processes, err
	})
	time.Sleep(250 * time.Millisecond)
	return err
}

func latchRows(took, pings []float64) []row {
	ping := median(pings)
	worst := slices.Max(took)
	limit := 50*ping + 20
	progress("latch: %s ms, a PING takes %s ms", figure(median(took)), figure(ping))
	return []row{
		{
			Measure: "latch, 1,000 waiters in 10 processes: last CountDown to last return, median / worst, ms",
			Cells:   map[string][]float64{redlatchName: {median(took), worst}},
			Rounds:  samples{redlatchName: took},
			Targets: []target{atMost("ms (50 PINGs + 20 ms), median", limit, median(took)), atMost("ms, worst", limit, worst)},
		},
		{
			Measure: "latch, 1,000 waiters in 10 processes: the same in PINGs, median / worst",
			Cells:   map[string][]float64{redlatchName: {median(took) / ping, worst / ping}},
		},
		{
			Measure: fmt.Sprintf("PING of go-redis, %d in all: p50 / p99, µs", len(pings)),
			Cells:   map[string][]float64{redlatchName: {1000 * percentile(pings, 0.50), 1000 * percentile(pings, 0.99)}},
		},
	}
}
