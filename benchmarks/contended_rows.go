package main

import (
	"fmt"
	"slices"
)

// rows turns what a contest found into lines of the table.
func (c contest) rows(found outcomes) []row {
	prefix := c.label + ": "
	waits := make(map[string][]float64)
	for _, name := range c.names {
		waits[name] = []float64{median(found.p50[name]), median(found.p99[name]), slices.Max(found.longest[name])}
	}
	throughput := row{Measure: prefix + "sections/s", Cells: found.sections.cells(), Rounds: found.sections}
	if c.targets != nil {
		throughput.Targets = c.targets(found)
	}
	commands := row{Measure: prefix + "commands sent per section", Cells: found.commands.cells(), Rounds: found.commands}
	if c.zeroBudget != nil {
		commands.Targets = c.zeroBudget(found)
	}
	rows := []row{
		throughput,
		{Measure: prefix + "wait p50 / p99 / max, ms", Cells: waits, Rounds: found.p99},
		{Measure: prefix + "fairness (Jain)", Cells: found.fairness.cells(), Rounds: found.fairness},
		commands,
		{Measure: prefix + c.overlapping(), Cells: c.overlaps(found), Rounds: found.overlaps, Targets: c.exclusion(found)},
	}
	stuck := found.stuck.sums()
	for _, cell := range stuck {
		if cell[0] > 0 {
			return append(rows, row{Measure: prefix + "goroutines stuck after the end", Cells: stuck, Rounds: found.stuck})
		}
	}
	return rows
}

// bestPeer is the one with the most sections per second among locks that a user could use instead, the raw floor included.
func (o outcomes) bestPeer() string {
	return o.sections.best(rawName, bsmName, redsyncName, rueidisName)
}

func (o outcomes) targets(times, p99 float64) []target {
	best := o.bestPeer()
	return append([]target{atLeast("× the best peer ("+best+")", times, o.sections.ratio(redlatchName, best))},
		o.waitTargets(p99)...)
}

// idealTargets compares with the 20,000 sections of 50 µs that fit into a second.
func (o outcomes) idealTargets() []target {
	return append([]target{atLeast("of the ideal 20,000/s", 0.6, median(o.sections[redlatchName])/20_000)},
		o.waitTargets(15)...)
}

func (o outcomes) waitTargets(p99 float64) []target {
	return []target{
		atMost("ms p99", p99, median(o.p99[redlatchName])),
		atLeast("Jain", 0.95, median(o.fairness[redlatchName])),
	}
}

func (o outcomes) zeroBudgetTargets() []target {
	return []target{
		atLeast("Jain with budget 0", 0.95, median(o.fairness[noBudgetName])),
		atMost("commands with budget 0", 3, median(o.commands[noBudgetName])),
	}
}

func (c contest) overlapping() string {
	if c.permits > 0 {
		return fmt.Sprintf("sections seen beyond the %d permitted", c.permits)
	}
	return "overlapping sections seen"
}

// overlaps leaves out those that may overlap.
func (c contest) overlaps(found outcomes) map[string][]float64 {
	cells := found.overlaps.sums()
	for _, who := range contestants(c.names...) {
		if who.shared {
			delete(cells, who.name)
		}
	}
	return cells
}

func (c contest) exclusion(found outcomes) []target {
	var total float64
	for _, name := range c.own {
		total += found.overlaps.sums()[name][0]
	}
	return []target{atMost("overlaps", 0, total)}
}

// sums returns the totals over all rounds.
func (s samples) sums() map[string][]float64 {
	cells := make(map[string][]float64, len(s))
	for name, values := range s {
		var sum float64
		for _, v := range values {
			sum += v
		}
		cells[name] = []float64{sum}
	}
	return cells
}
