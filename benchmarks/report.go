package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what a run found out.
type report struct {
	When    time.Time `json:"when"`
	Machine string    `json:"machine"`
	Rows    []row     `json:"rows"`
	Notes   []string  `json:"notes"`
}

// row is a line of the table: one measure of several contestants.
type row struct {
	Section string               `json:"section"`
	Measure string               `json:"measure"`
	Cells   map[string][]float64 `json:"cells"`            // contestant -> its figures, each a median over rounds
	Rounds  samples              `json:"rounds,omitempty"` // the first of them, round by round
	Targets []target             `json:"targets,omitempty"`
}

// target is a promise and what came of it.
type target struct {
	Text    string  `json:"text"`
	Got     float64 `json:"got"`
	Reached bool    `json:"reached"`
}

func atLeast(text string, want, got float64) target {
	return target{Text: fmt.Sprintf("≥ %s %s", figure(want), text), Got: got, Reached: got >= want}
}

func atMost(text string, want, got float64) target {
	return target{Text: fmt.Sprintf("≤ %s %s", figure(want), text), Got: got, Reached: got <= want}
}

func (t target) String() string {
	verdict := "reached"
	if !t.Reached {
		verdict = "**not reached**"
	}
	return fmt.Sprintf("%s: %s, %s", strings.TrimSpace(t.Text), figure(t.Got), verdict)
}

// samples holds a figure per round for each contestant. Round i of one was taken next to round i of the others.
type samples map[string][]float64

func (s samples) add(name string, value float64) { s[name] = append(s[name], value) }

// cells returns the medians.
func (s samples) cells() map[string][]float64 {
	cells := make(map[string][]float64, len(s))
	for name, values := range s {
		cells[name] = []float64{median(values)}
	}
	return cells
}

// ratio is the median over rounds of a's figure divided by b's of the same round.
func (s samples) ratio(a, b string) float64 { return median(s.quotients(a, b)) }

// quotients returns each round's figure of a divided by b's.
func (s samples) quotients(a, b string) (ratios []float64) {
	for i := range min(len(s[a]), len(s[b])) {
		if s[b][i] > 0 {
			ratios = append(ratios, s[a][i]/s[b][i])
		}
	}
	return ratios
}

// best returns the peer with the highest median.
func (s samples) best(peers ...string) string {
	return slices.MaxFunc(peers, func(a, b string) int {
		return int(math.Copysign(1, median(s[a])-median(s[b])))
	})
}

// tables prints the rows of each section as Markdown.
func (r *report) tables(w io.Writer, chosen []section) {
	for _, s := range chosen {
		var rows []row
		for _, row := range r.Rows {
			if row.Section == s.name {
				rows = append(rows, row)
			}
		}
		fmt.Fprintf(w, "### %s\n\n", s.name)
		table(w, rows)
		fmt.Fprintln(w)
	}
}

// table prints rows, with a column for each contestant that occurs.
func table(w io.Writer, rows []row) {
	var columns []string
	for _, name := range columnOrder() {
		if slices.ContainsFunc(rows, func(row row) bool { return row.Cells[name] != nil }) {
			columns = append(columns, name)
		}
	}
	fmt.Fprintf(w, "| | %s | target: measured |\n|---|%s---|\n", strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |", row.Measure)
		for _, column := range columns {
			fmt.Fprintf(w, " %s |", cell(row.Cells[column]))
		}
		fmt.Fprintf(w, " %s |\n", joined(row.Targets, "; "))
	}
}

// columnOrder returns the names of all contestants, those that are no locks last.
func columnOrder() (names []string) {
	for _, c := range allContestants() {
		names = append(names, c.name)
	}
	return append(names, asynqName, machineryName, statelessName, riverName, gocronName, onceName, setNXName, barrierName, countName, idsName, timedIDsName, uuidName, incrName,
		gridName, goRedisName, redissonName, rcacheName, goCacheName, goCacheGet, asideName, quietName, ignorantName)
}

// summary prints how many targets were reached, and those that were not.
func (r *report) summary(w io.Writer) {
	var total int
	var missed []string
	for _, row := range r.Rows {
		for _, t := range row.Targets {
			total++
			if !t.Reached {
				missed = append(missed, fmt.Sprintf("- %s: %s", row.Measure, t))
			}
		}
	}
	fmt.Fprintf(w, "Targets: %d of %d reached.\n", total-len(missed), total)
	for _, line := range missed {
		fmt.Fprintln(w, line)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
}

func (r *report) writeJSON(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func cell(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	return joined(values, " / ")
}

func joined[T any](values []T, separator string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		if f, ok := any(v).(float64); ok {
			texts[i] = figure(f)
		} else {
			texts[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(texts, separator)
}

// figure prints three significant digits, and whole numbers from 100 on with a comma every three digits.
func figure(f float64) string {
	switch abs := math.Abs(f); {
	case f == math.Trunc(f) && abs < 1000, abs == 0:
		return fmt.Sprintf("%.0f", f)
	case abs < 1:
		return fmt.Sprintf("%.3f", f)
	case abs < 10:
		return fmt.Sprintf("%.2f", f)
	case abs < 100:
		return fmt.Sprintf("%.1f", f)
	}
	digits := fmt.Sprintf("%.0f", f)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func machine(redisVersion string) string {
	return fmt.Sprintf("%d CPUs, %s/%s, %s, Redis %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), redisVersion)
}
