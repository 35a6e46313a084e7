package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// load is a number of holds that do nothing but be renewed.
type load struct {
	holds int
	lease time.Duration
	names []string
}

// idleFigures is what a load costs.
type idleFigures struct {
	holdResult
	observe  time.Duration
	slowest  time.Duration // script call
	kept     int           // keys that were there at the end
	shortest time.Duration // time to live among them
}

// slowlogFrom is the shortest script call that the server notes down; below it slowest is not known more exactly.
const slowlogFrom = 500 * time.Microsecond

func loads(c config) []load {
	small := []load{{10_000, 9 * time.Second, []string{redlatchName, rueidisName}}}
	own := []string{redlatchName}
	if c.holds > 0 {
		return []load{{c.holds, lease, own}}
	}
	if c.quick {
		return small
	}
	more := append(small, load{10_000, lease, own}, load{100_000, lease, own})
	if c.million {
		more = append(more, load{1_000_000, lease, own})
	}
	return more
}

// idle measures what holds cost while nothing happens.
func idle(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, l := range loads(b.config) {
		found := make(map[string]idleFigures)
		for _, name := range l.names {
			figures, err := l.run(ctx, b, name)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", name, l.label(), err)
			}
			progress("%s: %s done", l.label(), name)
			found[name] = figures
		}
		rows = append(rows, l.rows(found)...)
	}
	return rows, nil
}

func (l load) label() string {
	return fmt.Sprintf("%s idle holds, %s lease", figure(float64(l.holds)), l.lease)
}

// run has a worker take the holds, and watches it for a third of a lease: one round of renewals.
func (l load) run(ctx context.Context, b *bench, name string) (f idleFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	f.observe = l.lease / 3
	w, err := startWorker(ctx, "hold", holdTask{
		Contestant: name, Holds: l.holds, Observe: f.observe,
		Setup: setup{Addr: b.server.addr, Lease: l.lease, Retry: time.Second, NoTracking: true},
	})
	if err != nil {
		return f, err
	}
	defer w.end()
	if err := w.awaitReady(); err != nil {
		return f, err
	}
	if err := watchScripts(ctx, b.server.admin); err != nil {
		return f, err
	}
	if err := w.start(time.Now()); err != nil {
		return f, err
	}
	if err := w.result(&f.holdResult); err != nil {
		return f, err
	}
	if f.slowest, err = slowestScript(ctx, b.server.admin); err != nil {
		return f, err
	}
	if f.kept, f.shortest, err = shortestTTL(ctx, b.server.admin); err != nil {
		return f, err
	}
	w.end()
	return f, b.server.empty(ctx)
}

func watchScripts(ctx context.Context, admin *redis.Client) error {
	for name, value := range map[string]any{"slowlog-max-len": 20_000, "slowlog-log-slower-than": slowlogFrom.Microseconds()} {
		if err := admin.ConfigSet(ctx, name, fmt.Sprint(value)).Err(); err != nil {
			return err
		}
	}
	return admin.Do(ctx, "SLOWLOG", "RESET").Err()
}

// slowestScript ends the watch. It returns slowlogFrom when no script took longer.
func slowestScript(ctx context.Context, admin *redis.Client) (time.Duration, error) {
	if err := admin.ConfigSet(ctx, "slowlog-log-slower-than", "-1").Err(); err != nil {
		return 0, err
	}
	entries, err := admin.SlowLogGet(ctx, -1).Result()
	slowest := slowlogFrom
	for _, e := range entries {
		if len(e.Args) > 0 && strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
			slowest = max(slowest, e.Duration)
		}
	}
	return slowest, err
}

// shortestTTL walks the locks in small steps, so that the server goes on to serve renewals.
func shortestTTL(ctx context.Context, admin *redis.Client) (keys int, shortest time.Duration, err error) {
	seen := make(map[string]bool)
	shortest = 24 * time.Hour
	for cursor := uint64(0); ; {
		var page []string
		page, cursor, err = admin.Scan(ctx, cursor, "*idle:[0-9]*", 500).Result()
		if err != nil {
			return 0, 0, err
		}
		ttls, err := admin.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range page {
				p.PTTL(ctx, key)
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
		for i, reply := range ttls {
			if ttl := reply.(*redis.DurationCmd).Val(); ttl > 0 { // else it expired meanwhile
				seen[page[i]] = true
				shortest = min(shortest, ttl)
			}
		}
		if cursor == 0 {
			return len(seen), shortest, nil
		}
	}
}

func (l load) rows(found map[string]idleFigures) []row {
	lines := []struct {
		measure string
		figures func(idleFigures) []float64
	}{
		{"heap bytes per hold / with Done asked for", func(f idleFigures) []float64 { return []float64{f.Bytes, f.BytesWithDone} }},
		{"goroutines beyond those of one hold", func(f idleFigures) []float64 { return []float64{float64(f.Goroutines)} }},
		{"commands sent/s", func(f idleFigures) []float64 { return []float64{float64(f.Sent) / f.observe.Seconds()} }},
		{"client CPU per renewal round, s", func(f idleFigures) []float64 { return []float64{f.CPU.Seconds()} }},
		{"slowest script call, ms", func(f idleFigures) []float64 { return []float64{f.slowest.Seconds() * 1000} }},
		{"shortest time to live, s", func(f idleFigures) []float64 { return []float64{f.shortest.Seconds()} }},
		{"locks lost", func(f idleFigures) []float64 { return []float64{float64(l.holds - f.kept)} }},
	}
	targets := l.targets(found[redlatchName])
	var rows []row
	for i, line := range lines {
		r := row{Measure: l.label() + ": " + line.measure, Cells: make(map[string][]float64), Targets: targets[i]}
		for name, figures := range found {
			r.Cells[name] = line.figures(figures)
		}
		rows = append(rows, r)
	}
	return rows
}

// targets returns those of each line, none for the sizes in between.
func (l load) targets(f idleFigures) [7][]target {
	bytes := []target{atMost("bytes", 500, f.Bytes), atMost("bytes with Done", 700, f.BytesWithDone)}
	goroutines := []target{atMost("more goroutines", 10, float64(f.Goroutines))}
	lost := []target{atMost("lost", 0, float64(l.holds-f.kept))}
	switch {
	case l.lease < lease:
		return [7][]target{bytes, goroutines, {atMost("commands/s", 120, float64(f.Sent)/f.observe.Seconds())}, 6: lost}
	case l.holds == 1_000_000:
		// 1 % of the lease is what a hold keeps back as its margin.
		renewed := atLeast("s, renewed within a third", l.lease.Seconds()*(2.0/3-0.01), f.shortest.Seconds())
		return [7][]target{
			bytes, goroutines, nil,
			{atMost("s", 1, f.CPU.Seconds())},
			{atMost("ms", 2, f.slowest.Seconds()*1000)},
			{renewed},
			lost,
		}
	}
	return [7][]target{1: goroutines, 6: lost}
}
