package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/test/doctest"
)

const module = "github.com/redlatch/redlatch"

var heading = regexp.MustCompile(`(?m)^## F(\d+)\. (.*)$`)

// report returns the document that says what was run, for how long, and what came of it.
func report(commit string, took time.Duration, steps []step, results map[step]map[string]result) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `# Proof

Written by `+"`make soak`"+`, which ran all tests of the library on each supported server, and each long count of the failure
tests, those of the console and beside Java included, on one of them. It is written once every test has passed. A
package that has passed runs again only if something has changed that it is built of.

Commit %s, %s, %s on %d cores.

| | server | tests passed | failed | skipped | minutes of tests |
|---|---|--:|--:|--:|--:|
`, commit, time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU())
	letters := letters(steps)
	for _, s := range steps {
		var passed, failed, skipped int
		var seconds float64
		for _, r := range results[s] {
			seconds += r.Seconds
			for _, o := range r.Tests {
				switch {
				case o.Skipped:
					skipped++
				case o.Failed:
					failed++
				default:
					passed++
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %.0f |\n", letters[s.server], title(s), passed, failed, skipped, seconds/60)
	}
	fmt.Fprintf(&b, `
%.0f minutes of tests in all. The last run took %.0f minutes by the clock: packages run at the same time, and those that
had passed before do not run again. A test is skipped where the server cannot do what it is about.
`, minutes(results), took.Minutes())
	earlier(&b, steps, results)
	faults(&b, steps, results)
	err := classes(&b, steps, results)
	return b.String(), err
}

// earlier writes what failed before, on the same commit.
func earlier(b *strings.Builder, steps []step, results map[step]map[string]result) {
	var all []string
	for _, s := range steps {
		for _, pkg := range sorted(results[s]) {
			for _, name := range results[s][pkg].Earlier {
				all = append(all, fmt.Sprintf("- %s, %s, on %s\n", name, strings.TrimPrefix(pkg, module+"/"), title(s)))
			}
		}
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "\nThese failed in an earlier run, and passed when their package ran again:\n\n%s", strings.Join(all, ""))
	}
}

// faults writes which faults were injected, and how often.
func faults(b *strings.Builder, steps []step, results map[step]map[string]result) {
	usual, long := map[string]int{}, map[string]int{}
	for _, s := range steps {
		for _, r := range results[s] {
			for fault, n := range r.Faults {
				if s.long {
					long[fault] += n
				} else {
					usual[fault] += n
				}
				usual[fault] += 0 // so that it has all names
			}
		}
	}
	b.WriteString(`
## Faults

What the tests did to servers, processes and connections. Evictions, refused commands, full memory, slow disks and cold
script caches are not in the table; the tests of their classes are below.

| fault | on each server, together | long counts |
|---|--:|--:|
`)
	for _, fault := range sorted(usual) {
		fmt.Fprintf(b, "| %s | %d | %d |\n", fault, usual[fault], long[fault])
	}
}

// classes writes what became of the tests of each failure class.
func classes(b *strings.Builder, steps []step, results map[step]map[string]result) error {
	all, err := doctest.FindClasses(os.DirFS("."))
	if err != nil {
		return err
	}
	document, err := os.ReadFile("docs/failure-classes.md")
	if err != nil {
		return err
	}
	b.WriteString(`
## By failure class

[failure-classes.md](failure-classes.md) says what each class is. Rounds are what a test counts itself: repetitions
of what it is about, such as an acquisition, a fault, a kill, or a history that is checked. One that has several
counts, such as waiters and kills, has their sum here. A test without a number does it once. The letters are those of
the servers in the first table on which the test ran, as usual and with its long count.

| class | test | usual | rounds | long | rounds | failed |
|---|---|---|--:|---|--:|--:|
`)
	letters := letters(steps)
	for _, class := range heading.FindAllStringSubmatch(string(document), -1) {
		number, err := strconv.Atoi(class[1])
		if err != nil {
			return err
		}
		for _, pkg := range sorted(all[number]) {
			for _, test := range all[number][pkg] {
				var usual, long ran
				failed := 0
				for _, s := range steps {
					o, known := results[s][importPath(pkg)].Tests[test]
					switch {
					case !known || o.Skipped:
						continue
					case o.Failed:
						failed++
					}
					if s.long {
						long.add(letters[s.server], o)
					} else {
						usual.add(letters[s.server], o)
					}
				}
				fmt.Fprintf(b, "| F%d | %s, %s | %v | %v | %d |\n", number, test, pkg, usual, long, failed)
			}
		}
	}
	return nil
}

// ran is where a test ran, and its rounds there together.
type ran struct {
	servers string // their letters
	rounds  int
}

func (r *ran) add(letter string, o outcome) {
	r.servers += letter
	r.rounds += o.Rounds
}

// String returns two columns of the table. One without rounds in it is empty.
func (r ran) String() string {
	if r.rounds == 0 {
		return r.servers + " |"
	}
	return fmt.Sprintf("%s | %d", r.servers, r.rounds)
}

// letters returns a letter for each server.
func letters(steps []step) map[string]string {
	all := map[string]string{}
	for _, s := range steps {
		if all[s.server] == "" {
			all[s.server] = string(rune('a' + len(all)))
		}
	}
	return all
}

// importPath returns the package of a directory as classes name it.
func importPath(dir string) string {
	if dir == "redlatch" {
		return module
	}
	return path.Join(module, dir)
}

// title names a step for the report, with the version of the server that is installed.
func title(s step) string {
	name := strings.ToUpper(s.server[:1]) + strings.Replace(s.server[1:], "-", " ", 1)
	if s.server == "installed" {
		if text, err := exec.Command("redis-server", "--version").Output(); err == nil { //nolint:noctx // at once
			if _, version, found := strings.Cut(string(text), "v="); found {
				version, _, _ = strings.Cut(version, " ")
				name = "Redis " + version
			}
		}
	}
	return name + s.suffix()
}
