package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/doctest"
)

var heading = regexp.MustCompile(`(?m)^## F(\d+)\. (.*)$`)

// report returns the document that says what was run and what came of it.
func report(commit string, steps []step, results map[step]map[string]result) (string, error) {
	classes, err := doctest.FindClasses(os.DirFS("."))
	if err != nil {
		return "", err
	}
	document, err := os.ReadFile("docs/failure-classes.md")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Proof

Written by `+"`make soak`"+`, which ran all tests on each supported server and the long counts of the failure tests
on one. It is not written if a package fails.

Commit %s, %s, %s on %d cores.

| server | tests passed | failed | skipped | rounds | minutes of tests |
|---|--:|--:|--:|--:|--:|
`, commit, time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU())
	for _, s := range steps {
		var passed, failed, skipped, rounds int
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
					rounds += o.Rounds
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %.0f |\n", title(s), passed, failed, skipped, rounds, seconds/60)
	}
	b.WriteString(`
A test is skipped where the server cannot do what it is about. Rounds are what the tests count themselves: mostly
repetitions, of an acquisition, a fault, a kill or a history that is checked.

## By failure class

[failure-classes.md](failure-classes.md) says what each class is and names its tests.

| class | tests | runs | rounds | violations |
|---|--:|--:|--:|--:|
`)
	for _, class := range heading.FindAllStringSubmatch(string(document), -1) {
		var number int
		if _, err := fmt.Sscan(class[1], &number); err != nil {
			return "", err
		}
		var tests, runs, rounds, violations int
		for _, pkg := range sorted(classes[number]) {
			for _, test := range classes[number][pkg] {
				tests++
				for _, s := range steps {
					o, ran := results[s][importPath(pkg)].Tests[test]
					if ran && !o.Skipped {
						runs++
						rounds += o.Rounds
						if o.Failed {
							violations++
						}
					}
				}
			}
		}
		fmt.Fprintf(&b, "| F%d. %s | %d | %d | %d | %d |\n", number, class[2], tests, runs, rounds, violations)
	}
	return b.String(), nil
}

// importPath returns the package of a directory as classes name it.
func importPath(dir string) string {
	const module = "github.com/redlatch/redlatch"
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
	if s.long {
		name += ", long counts"
	}
	return name
}
