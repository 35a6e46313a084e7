package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rscheduler"
)

const (
	scheduledJobs      = 1000
	scheduledProcesses = 5
	scheduledHandlers  = 20
	scheduledPeriod    = time.Second
	scheduledTicks     = "scheduled ticks" // a list of "job, instant, µs, attempt, lateness, µs"
)

// scheduledTask is a process that runs a scheduler until it is killed, or its parent has gone.
type scheduledTask struct {
	Addr    string             `json:"addr"`
	Lease   time.Duration      `json:"lease"`
	Spread  bool               `json:"spread"`
	Killed  bool               `json:"killed"`
	Overlap rscheduler.Overlap `json:"overlap"` // QueueAll has a backlog of any length
	Gocron  bool               `json:"gocron"`  // runs gocron with a lock that is kept
}

// offset is how long after those of rscheduler.Every the instants of a job are.
func (t scheduledTask) offset(job int) time.Duration {
	if !t.Spread {
		return 0
	}
	return time.Duration(job) * scheduledPeriod / scheduledJobs
}

// offset is a schedule of a fixed rate whose instants are some time after those of rscheduler.Every.
type offset struct {
	rscheduler.Schedule
	by time.Duration
}

func (o offset) Next(after time.Time) (time.Time, bool) {
	next, ok := o.Schedule.Next(after.Add(-o.by))
	return next.Add(o.by), ok
}

func (o offset) String() string { return fmt.Sprintf("%v and %v", o.Schedule, o.by) }

// runScheduled is the task of a worker that is killed. It is ready when all jobs are registered.
func runScheduled(ctx context.Context, task scheduledTask, ready func() time.Time) (int, error) {
	rdb := newGoRedis(setup{Addr: task.Addr})
	if task.Gocron {
		return runGocron(ctx, rdb, task, ready)
	}
	client, err := redlatch.New(rdb)
	if err != nil {
		return 0, err
	}
	s := client.GetScheduler("scheduled", rscheduler.WithConcurrency(scheduledHandlers), rscheduler.WithLease(task.Lease))
	// Ticks are noted a batch at a time, so that handlers do not wait for Redis. A process that is killed would lose a batch.
	recorder, notes := newGoRedis(setup{Addr: task.Addr}), make(chan string, 100_000)
	go note(ctx, recorder, notes)
	opts := []rscheduler.JobOption{rscheduler.WithHistory(1), rscheduler.WithOverlap(task.Overlap)}
	if task.Overlap == rscheduler.QueueAll { // of the ticks that a dead run blocks
		opts = append(opts, rscheduler.WithCatchUp(time.Minute), rscheduler.WithBacklog(10_000))
	}
	for n := range scheduledJobs {
		every := rscheduler.Every(scheduledPeriod)
		if task.Spread {
			every = offset{every, task.offset(n)}
		}
		job := strconv.Itoa(n)
		err := s.Register(job, every, func(ctx context.Context, run rscheduler.Run) error {
			// Redis's clock is this machine's.
			line := tickLine(job, run.Scheduled, run.Attempt)
			if task.Killed {
				return recorder.RPush(ctx, scheduledTicks, line).Err()
			}
			notes <- line
			return nil
		}, opts...)
		if err != nil {
			return 0, err
		}
	}
	ready()
	return 0, s.Run(ctx)
}

// tickLine notes that a tick runs now.
func tickLine(job string, instant time.Time, attempt int) string {
	return fmt.Sprint(job, " ", instant.UnixMicro(), " ", attempt, " ", time.Since(instant).Microseconds())
}

// note writes what was run, until ctx ends.
func note(ctx context.Context, rdb *redis.Client, notes <-chan string) {
	for first := range notes {
		batch := []any{first}
		for len(notes) > 0 {
			batch = append(batch, <-notes)
		}
		if rdb.RPush(ctx, scheduledTicks, batch...).Err() != nil {
			return
		}
	}
}

// scheduled measures how late the ticks of many jobs begin, and whether killed processes take any with them.
func scheduled(ctx context.Context, b *bench) ([]row, error) {
	span, kills := 20*time.Second, time.Minute
	if b.config.quick {
		span, kills = 4*time.Second, 6*time.Second
	}
	var rows []row
	type measurement struct {
		what string
		task scheduledTask
		span time.Duration
	}
	all := []measurement{
		{"evenly", scheduledTask{Addr: b.server.addr, Lease: 30 * time.Second, Spread: true, Overlap: rscheduler.Allow}, span},
		{"at one instant", scheduledTask{Addr: b.server.addr, Lease: 30 * time.Second, Overlap: rscheduler.Allow}, span},
	}
	for _, overlap := range []rscheduler.Overlap{rscheduler.Allow, rscheduler.QueueAll, rscheduler.Skip} {
		what := "evenly, a kill -9 each second, " + overlap.String()
		all = append(all, measurement{
			what, scheduledTask{Addr: b.server.addr, Lease: time.Second, Spread: true, Killed: true, Overlap: overlap}, kills,
		})
	}
	for _, r := range all {
		what := "1,000 jobs each second, " + r.what
		progress("%s", what)
		found, err := runTicks(ctx, b, r.task, r.span)
		if err != nil {
			return nil, err
		}
		cells := func(values ...float64) map[string][]float64 { return map[string][]float64{redlatchName: values} }
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		p99 := ms(found.late.percentile(0.99))
		late := row{
			Measure: what + ": lateness p50/p99/max ms",
			Cells:   cells(ms(found.late.percentile(0.5)), p99, ms(found.late.Max)),
		}
		if r.task.Spread && !r.task.Killed {
			late.Targets = []target{atMost("p99", 10, p99)}
		}
		count := row{
			Measure: what + ": ticks / begun twice / missed / repeated after a kill",
			Cells:   cells(float64(found.ticks), float64(found.twice), float64(found.missed), float64(found.repeated)),
			Targets: []target{atMost("twice", 0, float64(found.twice))},
		}
		if r.task.Overlap != rscheduler.Skip { // which runs only the newest of the ticks that it missed
			count.Targets = append(count.Targets, atMost("missed", 0, float64(found.missed)))
		}
		rows = append(rows, late, count)
		if err := b.server.empty(ctx); err != nil {
			return nil, err
		}
		if !r.task.Killed {
			peer := r.task
			peer.Gocron = true
			progress("%s, gocron", what)
			theirs, err := runTicks(ctx, b, peer, r.span)
			if err != nil {
				return nil, err
			}
			costs := cells(found.cost())
			costs[gocronName] = []float64{theirs.cost()}
			rows = append(rows, row{Measure: what + ": µs of the server's CPU per tick", Cells: costs})
			if err := b.server.empty(ctx); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}

// ticked is what the processes have run.
type ticked struct {
	late                           histogram
	ticks, twice, missed, repeated int
	cpu                            time.Duration
}

// cost is what a tick costs the server, µs.
func (t *ticked) cost() float64 { return float64(t.cpu.Microseconds()) / float64(t.ticks) }

// runTicks has the processes run for a span, after two seconds that do not count.
func runTicks(ctx context.Context, b *bench, task scheduledTask, span time.Duration) (t ticked, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers []*worker
	defer func() { endAll(workers) }()
	for range scheduledProcesses {
		w, err := startScheduled(ctx, task)
		if err != nil {
			return t, err
		}
		workers = append(workers, w)
	}
	time.Sleep(2 * time.Second)
	start, cpu := time.Now(), serverCPU(ctx, b)
	for n := 0; time.Since(start) < span; n++ {
		time.Sleep(time.Second)
		if !task.Killed {
			continue
		}
		victim := n % len(workers)
		workers[victim].end()
		if workers[victim], err = startScheduled(ctx, task); err != nil {
			return t, err
		}
	}
	end := time.Now()
	t.cpu = serverCPU(ctx, b) - cpu
	time.Sleep(task.leeway()) // for what is in flight, and what has to be repeated
	lines, err := b.server.admin.LRange(ctx, scheduledTicks, 0, -1).Result()
	if err != nil {
		return t, err
	}
	return t, t.count(lines, task, start, end)
}

// leeway is how long it may take until a tick is noted.
func (t scheduledTask) leeway() time.Duration {
	if t.Overlap != rscheduler.Allow {
		return 20 * time.Second // a backlog takes a while
	}
	return min(3*t.Lease, 5*time.Second)
}

func startScheduled(ctx context.Context, task scheduledTask) (*worker, error) {
	w, err := startWorker(ctx, "scheduled", task)
	if err != nil {
		return nil, err
	}
	return w, errors.Join(w.awaitReady(), w.start(time.Now()))
}

// count looks at the ticks whose instants are in a span.
func (t *ticked) count(lines []string, task scheduledTask, start, end time.Time) error {
	seen := map[string]bool{}
	for _, line := range lines {
		var job string
		var instant, attempt, late int64
		if _, err := fmt.Sscan(line, &job, &instant, &attempt, &late); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if at := time.UnixMicro(instant); at.Before(start) || !at.Before(end) {
			continue
		}
		id := strings.Join(strings.Fields(line)[:2], " ")
		if attempt > 1 {
			t.repeated++
		} else {
			t.late.add(time.Duration(late) * time.Microsecond)
			if seen[id] {
				t.twice++
			}
		}
		seen[id] = true
	}
	t.ticks = len(seen)
	for n := range scheduledJobs {
		schedule := offset{rscheduler.Every(scheduledPeriod), task.offset(n)}
		for at, _ := schedule.Next(start.Add(-1)); at.Before(end); at, _ = schedule.Next(at) {
			if !seen[fmt.Sprint(n, " ", at.UnixMicro())] {
				t.missed++
			}
		}
	}
	return nil
}
