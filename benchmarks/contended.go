package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// contest is a number of goroutines, in one process or several, that all want one key.
type contest struct {
	label      string
	processes  int
	goroutines int // in each process
	section    time.Duration
	names      []string // of the contestants
	own        []string // those of them that must not overlap
	permits    int      // of a semaphore; 0 for locks
	targets    func(found outcomes) []target
	zeroBudget func(found outcomes) []target
}

func contests() []contest {
	peers := []string{rawName, bsmName, redsyncName, rueidisName}
	own := []string{redlatchName}
	one := append([]string{redlatchName}, peers...)
	several := append([]string{redlatchName, noBudgetName}, peers...)
	return []contest{
		{label: "contended, 16 goroutines", processes: 1, goroutines: 16, names: one, own: own},
		{label: "contended, 64 goroutines", processes: 1, goroutines: 64, names: append(one, plainName, autoName), own: own, targets: func(f outcomes) []target {
			return f.targets(10, 7)
		}},
		{label: "contended, 4 processes of 8", processes: 4, goroutines: 8, names: several, own: own, targets: func(f outcomes) []target {
			return f.targets(8, 10)
		}, zeroBudget: outcomes.zeroBudgetTargets},
		{
			label: "contended, 4 processes of 8, 50 µs inside", processes: 4, goroutines: 8, section: 50 * time.Microsecond,
			names: several, own: own,
			targets: outcomes.idealTargets, zeroBudget: outcomes.zeroBudgetTargets,
		},
	}
}

// outcomes holds what was found, measure by measure.
type outcomes struct {
	sections, p50, p99, longest, fairness, commands, overlaps, stuck samples
	settings                                                         map[string]string
}

func newOutcomes() outcomes {
	return outcomes{
		sections: samples{}, p50: samples{}, p99: samples{}, longest: samples{}, fairness: samples{}, commands: samples{}, overlaps: samples{}, stuck: samples{},
		settings: map[string]string{},
	}
}

// contended measures locks that many want at once.
func contended(ctx context.Context, b *bench) ([]row, error) {
	return runContests(ctx, b, contests())
}

// runContests runs contests one after the other.
func runContests(ctx context.Context, b *bench, contests []contest) ([]row, error) {
	rounds, window := 3, 800*time.Millisecond
	if b.config.quick {
		rounds, window = 1, 300*time.Millisecond
	}
	var rows []row
	for _, c := range contests {
		found := newOutcomes()
		tuned, err := tuneAll(ctx, b, c)
		if err != nil {
			return nil, err
		}
		for round := range rounds {
			for _, who := range rotated(contestants(c.names...), round) {
				if err := c.run(ctx, b, who.name, tuned[who.name], window, found); err != nil {
					return nil, fmt.Errorf("%s, %s: %w", who.name, c.label, err)
				}
			}
		}
		progress("%s: %s %s sections/s", c.label, c.names[0], figure(median(found.sections[c.names[0]])))
		rows = append(rows, c.rows(found)...)
	}
	return rows, nil
}

// tuneAll finds each contestant's best setting for this contest: the one with the most sections per second of which no
// goroutine got stuck.
func tuneAll(ctx context.Context, b *bench, c contest) (map[string]setup, error) {
	best := make(map[string]setup)
	for _, who := range contestants(c.names...) {
		best[who.name] = setup{}
		if len(who.tuning) == 0 {
			continue
		}
		best[who.name] = who.tuning[0]
		if b.config.quick {
			continue
		}
		var most float64
		for _, candidate := range who.tuning {
			found := newOutcomes()
			if err := c.run(ctx, b, who.name, candidate, 250*time.Millisecond, found); err != nil {
				return nil, fmt.Errorf("tune %s, %s: %w", who.name, c.label, err)
			}
			if rate := found.sections[who.name][0]; rate > most && found.stuck[who.name][0] == 0 {
				most, best[who.name] = rate, candidate
			}
		}
		progress("%s: %s does best with %s", c.label, who.name, best[who.name].tuned())
	}
	return best, nil
}

// run lets the processes of one contestant compete, and adds what they saw to found.
func (c contest) run(ctx context.Context, b *bench, name string, s setup, window time.Duration, found outcomes) (err error) {
	ctx, cancel := context.WithTimeout(ctx, window+40*time.Second)
	defer cancel()
	path, err := newWitness()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path), b.server.empty(ctx)) }()
	s.Addr, s.Lease, s.Permits = b.server.addr, lease, c.permits
	capacity := max(c.permits, 1)
	if contestants(name)[0].shared {
		capacity = c.processes * c.goroutines
	}
	total, err := c.compete(ctx, contendTask{
		Contestant: name, Setup: s, Goroutines: c.goroutines, Section: c.section, Capacity: capacity,
		WarmUp: 200 * time.Millisecond, Window: window, Witness: path,
	})
	if err != nil {
		return err
	}
	seen, err := openWitness(path)
	if err != nil {
		return err
	}
	found.add(name, total, window, seen.overlaps.Load())
	return seen.close()
}

// compete starts the workers, lets them go at the same moment and adds up what they return.
func (c contest) compete(ctx context.Context, task contendTask) (total contendResult, err error) {
	results, err := together[contendTask, contendResult](ctx, "contend", c.processes, task, nil)
	for _, result := range results {
		total.Sections = append(total.Sections, result.Sections...)
		total.Waits.merge(result.Waits)
		total.Sent += result.Sent
		total.Stuck += result.Stuck
	}
	return total, err
}

func (o outcomes) add(name string, r contendResult, window time.Duration, overlaps int64) {
	var sections int64
	for _, n := range r.Sections {
		sections += n
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	o.sections.add(name, float64(sections)/window.Seconds())
	o.p50.add(name, ms(r.Waits.percentile(0.50)))
	o.p99.add(name, ms(r.Waits.percentile(0.99)))
	o.longest.add(name, ms(r.Waits.Max))
	o.fairness.add(name, jain(r.Sections))
	o.commands.add(name, float64(r.Sent)/float64(max(sections, 1)))
	o.overlaps.add(name, float64(overlaps))
	o.stuck.add(name, float64(r.Stuck))
}

func (s setup) tuned() string {
	if s.Retry == time.Second {
		return "tracking"
	}
	return "a retry every " + s.Retry.String()
}
