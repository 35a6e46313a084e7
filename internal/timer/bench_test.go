package timer_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/timer"
)

const million = 1_000_000

// randomTimes returns a million times within ten seconds.
func randomTimes() []time.Duration {
	rng := rand.New(rand.NewPCG(1, 2))
	times := make([]time.Duration, million)
	for i := range times {
		times[i] = time.Millisecond + time.Duration(rng.Int64N(int64(10*time.Second)))
	}
	return times
}

// BenchmarkMillion sets, stops, sets again and fires a million timers, on a clock that stands still and then jumps.
func BenchmarkMillion(b *testing.B) {
	times := randomTimes()
	var set, stop, fire time.Duration
	var bytes uint64
	for b.Loop() {
		var clock atomic.Int64
		fired, done := 0, make(chan struct{})
		w := timer.NewBatched(func() time.Duration { return time.Duration(clock.Load()) }, func(due []*timer.Timer) {
			if fired += len(due); fired == million+1 {
				close(done)
			}
		})
		before := heap()
		timers := make([]timer.Timer, million)
		setAll := func() time.Duration {
			start := time.Now()
			for i := range timers {
				w.Set(&timers[i], times[i])
			}
			return time.Since(start)
		}
		set += setAll()
		bytes += heap() - before
		start := time.Now()
		for i := range timers {
			w.Stop(&timers[i])
		}
		stop += time.Since(start)
		set += setAll()

		start = time.Now()
		clock.Store(int64(11 * time.Second))
		w.Set(new(timer.Timer), 0)
		<-done
		fire += time.Since(start)
		w.Close()
	}
	n := float64(b.N) * million
	b.ReportMetric(float64(set.Nanoseconds())/(2*n), "ns/set")
	b.ReportMetric(float64(stop.Nanoseconds())/n, "ns/stop")
	b.ReportMetric(float64(fire.Nanoseconds())/n, "ns/fire")
	b.ReportMetric(float64(bytes)/n, "B/timer")
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// late is a timer, and by how much it was late.
type late struct {
	timer timer.Timer
	by    time.Duration
}

func (*late) Due(time.Duration) {}

// BenchmarkMillionLateness fires a million timers over ten seconds of the real clock, which is what it measures.
func BenchmarkMillionLateness(b *testing.B) {
	times := randomTimes()
	all := make([]late, million)
	for b.Loop() {
		start := time.Now()
		now := func() time.Duration { return time.Since(start) }
		fired, done := 0, make(chan struct{})
		w := timer.NewBatched(now, func(due []*timer.Timer) {
			at := now()
			for _, d := range due {
				l := d.Task.(*late)
				l.by = at - l.by
			}
			if fired += len(due); fired == million {
				close(done)
			}
		})
		for i := range all {
			at := times[i] + 2*time.Second
			all[i].by = at
			all[i].timer.Task = &all[i]
			w.Set(&all[i].timer, at)
		}
		<-done
		w.Close()
	}
	slices.SortFunc(all, func(x, y late) int { return int(x.by - y.by) })
	b.ReportMetric(float64(all[million/2].by.Microseconds()), "µs-late-p50")
	b.ReportMetric(float64(all[million/100*99].by.Microseconds()), "µs-late-p99")
	b.ReportMetric(float64(all[million-1].by.Microseconds()), "µs-late-max")
}
