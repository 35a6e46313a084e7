package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/rdelayedqueue"
)

// drainTask is a process that handles a number of jobs.
type drainTask struct {
	Addr string `json:"addr"`
	Jobs int    `json:"jobs"`
}

// drained is what a process saw of its jobs.
type drained struct {
	Last    time.Time     `json:"last"` // when the last one was handled that had not been before
	Late    histogram     `json:"late"` // since each was due, by Redis's clock, which is this machine's
	Early   int           `json:"early"`
	Twice   int           `json:"twice"`
	Missing int           `json:"missing"`
	Sent    int64         `json:"sent"`
	CPU     time.Duration `json:"cpu"`
}

// drainJobs is the task of a worker that handles all jobs, by 64 handlers. It gives up when none came for 20 s.
func drainJobs(ctx context.Context, task drainTask, ready func() time.Time) (d drained, err error) {
	wire := &sent{}
	opened, err := openJobs(redlatchName, setup{Addr: task.Addr, Sent: wire})
	if err != nil {
		return d, err
	}
	queue := opened.(*redlatchJobs).queue //nolint:forcetypeassert // it was asked for
	var mu sync.Mutex
	seen, left := make([]bool, task.Jobs), task.Jobs
	working, stop := context.WithCancel(ctx)
	defer stop()
	idle := time.AfterFunc(time.Hour, stop)
	begin := ready()
	time.Sleep(time.Until(begin) - 500*time.Millisecond)
	idle.Reset(20 * time.Second)
	before, cpu := wire.count(), cpuTime()
	err = queue.Consume(working, func(_ context.Context, m *rdelayedqueue.Message[[]byte]) error {
		now := time.Now()
		n, due := jobOf(m.Value)
		mu.Lock()
		defer mu.Unlock()
		d.Late.add(now.Sub(m.DueAt))
		if now.Before(m.DueAt) || now.Before(due) {
			d.Early++
		}
		if n >= len(seen) || seen[n] {
			d.Twice++
			return nil
		}
		seen[n], d.Last = true, now
		if left--; left == 0 {
			stop()
		} else if left%1000 == 0 {
			idle.Reset(20 * time.Second)
		}
		return nil
	}, rdelayedqueue.WithConcurrency(64))
	d.Missing, d.Sent, d.CPU = left, wire.count()-before, cpuTime()-cpu
	return d, errors.Join(err, opened.close())
}

// jobPayload returns the payload of a job: its number and its time, in 100 bytes.
func jobPayload(n int, due time.Time) []byte {
	p := []byte(payload)
	binary.BigEndian.PutUint64(p, uint64(n))
	binary.BigEndian.PutUint64(p[8:], uint64(due.UnixMicro()))
	return p
}

func jobOf(p []byte) (n int, due time.Time) {
	if len(p) != len(payload) {
		return -1, due
	}
	return int(binary.BigEndian.Uint64(p)), time.UnixMicro(int64(binary.BigEndian.Uint64(p[8:])))
}

// drain has one process handle many jobs that are due at one moment, and a million that are due over a minute.
func drain(ctx context.Context, b *bench) ([]row, error) {
	if err := b.server.empty(ctx); err != nil {
		return nil, err
	}
	if b.config.quick {
		return drainOnce(ctx, b, 50_000, 0, 3*time.Second)
	}
	rows, err := drainOnce(ctx, b, 200_000, 0, 8*time.Second)
	if err != nil || !b.config.million {
		return rows, err
	}
	more, err := drainOnce(ctx, b, 1_000_000, time.Minute, 25*time.Second)
	return append(rows, more...), err
}

// drainOnce offers n jobs whose times are spread over a span, the first one after a pause for the offers.
func drainOnce(ctx context.Context, b *bench, n int, span, pause time.Duration) ([]row, error) {
	what := fmt.Sprintf("%s jobs due at one moment", figure(float64(n)))
	if span > 0 {
		what = fmt.Sprintf("%s jobs due over %s", figure(float64(n)), span)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	w, err := startWorker(ctx, "drain", drainTask{b.server.addr, n})
	if err != nil {
		return nil, err
	}
	defer w.end()
	if err := w.awaitReady(); err != nil {
		return nil, err
	}
	memory, start := usedMemory(ctx, b), time.Now()
	begin := start.Add(pause)
	if err := fill(ctx, b, n, begin, span); err != nil {
		return nil, err
	}
	filled := time.Since(start)
	progress("%s: offered in %s", what, filled.Round(time.Millisecond))
	if time.Now().After(begin) {
		return nil, fmt.Errorf("%s: the offers took %s, longer than the %s there were for them", what, filled, pause)
	}
	memory = (usedMemory(ctx, b) - memory) / float64(n)
	if err := watchScripts(ctx, b.server.admin); err != nil {
		return nil, err
	}
	server := serverCPU(ctx, b)
	if err := w.start(begin); err != nil {
		return nil, err
	}
	var d drained
	if err := w.result(&d); err != nil {
		return nil, err
	}
	server = serverCPU(ctx, b) - server
	slowest, err := slowestScript(ctx, b.server.admin)
	if err != nil {
		return nil, err
	}
	took := d.Last.Sub(begin).Seconds()
	progress("%s: handled in %s s", what, figure(took))
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	perJob := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	cells := func(values ...float64) map[string][]float64 { return map[string][]float64{redlatchName: values} }
	return []row{
		{
			Measure: what + ": s until the last was handled / jobs/s / early / lost / handled twice",
			Cells:   cells(took, float64(n)/took, float64(d.Early), float64(d.Missing), float64(d.Twice)),
			Targets: []target{atMost("early", 0, float64(d.Early)), atMost("lost", 0, float64(d.Missing))},
		},
		{Measure: what + ": lateness p50/p99/max ms", Cells: cells(ms(d.Late.percentile(0.5)), ms(d.Late.percentile(0.99)), ms(d.Late.Max))},
		{
			Measure: what + ": commands sent per job / µs of CPU per job, consumer / server / slowest script, ms",
			Cells:   cells(float64(d.Sent)/float64(n), perJob(d.CPU), perJob(server), ms(slowest)),
		},
		{Measure: what + ": offers/s in batches of 1,000 / bytes of Redis for each", Cells: cells(float64(n)/filled.Seconds(), memory)},
	}, b.server.empty(ctx)
}

// fill offers n jobs from four goroutines.
func fill(ctx context.Context, b *bench, n int, begin time.Time, span time.Duration) error {
	opened, err := openJobs(redlatchName, setup{Addr: b.server.addr})
	if err != nil {
		return err
	}
	queue := opened.(*redlatchJobs).queue //nolint:forcetypeassert // it was asked for
	err = offerItems(ctx, queue, n, func(i int) rdelayedqueue.Item[[]byte] {
		due := begin.Add(span * time.Duration(i) / time.Duration(n))
		return rdelayedqueue.Item[[]byte]{Value: jobPayload(i, due), Delay: max(0, time.Until(due))}
	})
	return errors.Join(err, opened.close())
}

// serverCPU is the server's, in user and system mode.
func serverCPU(ctx context.Context, b *bench) (total time.Duration) {
	info, err := b.server.admin.Info(ctx, "cpu").Result()
	if err != nil {
		return 0
	}
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			var seconds float64
			_, _ = fmt.Sscan(text, &seconds) // 0 then
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}
