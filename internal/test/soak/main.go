// Command soak runs all tests on each supported server, then the long counts of the failure tests, those of the console
// and beside Java included, and writes what it saw to docs/proof.md. It runs at the top of the module, on a clean checkout:
//
//	go run ./internal/test/soak         # the servers of the matrix, then the long counts
//	go run ./internal/test/soak -long=  # the servers alone
//
// A test with a long count runs it on the first server of -long that does not skip it.
//
// What has passed is kept for each server and package until something changes that the package is built of: a run that
// was interrupted, or in which a package failed, goes on with what has not passed.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "soak: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// step is one run of all packages of a module.
type step struct {
	server string // as .ci/with-server knows it
	long   bool   // with the long counts
	module string // its folder
}

func (s step) String() string {
	return s.server + s.suffix()
}

// suffix says what a step is beside its server.
func (s step) suffix() (text string) {
	switch s.module {
	case "interop":
		text = ", beside Java"
	case "console":
		text = ", the console"
	}
	if s.long {
		text += ", long counts"
	}
	return text
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	servers := flags.String("servers", "redis-6.2.14 installed redis-8.2.3 valkey-9.1.2", "the servers, as .ci/with-server knows them")
	long := flags.String("long", "installed valkey-9.1.2", "the servers for the long counts, some of -servers")
	out := flags.String("out", "docs/proof.md", "the report")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	commit, err := clean(ctx, *out)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	var steps []step
	for server := range strings.FieldsSeq(*servers) {
		steps = append(steps, step{server: server, module: "."})
	}
	for i, server := range strings.Fields(*long) {
		if !slices.Contains(steps, step{server: server, module: "."}) {
			return fmt.Errorf("the long counts of %s: it is not among -servers", server)
		}
		steps = append(steps, step{server: server, module: ".", long: true})
		if i == 0 {
			steps = append(steps, step{server: server, module: "console", long: true}, step{server: server, module: "interop", long: true})
		}
	}
	results, failed := map[step]map[string]result{}, error(nil)
	started := time.Now()
	defer func() {
		fmt.Printf("=== %.0f minutes, of %.0f minutes of tests in all\n", time.Since(started).Minutes(), minutes(results))
	}()
	for _, s := range steps {
		dir := filepath.Join(cache, "redlatch", "soak", strings.NewReplacer(", ", "-", " ", "-").Replace(s.String()))
		var tests map[string][]string
		if s.long && s.module == "." {
			tests = counting(s, results)
		}
		if results[s], err = s.run(ctx, dir, tests); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%v: %w", s, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed != nil {
		return failed
	}
	text, err := report(commit, time.Since(started), steps, results)
	if err != nil {
		return err
	}
	return os.WriteFile(*out, []byte(text), 0o644) //nolint:gosec // a document
}

// counting returns the tests, by package, that have counts on the server of a step, and did not run with the long ones yet.
func counting(s step, results map[step]map[string]result) map[string][]string {
	ran := map[string]bool{}
	for other, packages := range results {
		if !other.long || other == s {
			continue
		}
		for pkg, r := range packages {
			for test, o := range r.Tests {
				ran[pkg+"."+test] = ran[pkg+"."+test] || !o.Skipped
			}
		}
	}
	tests := map[string][]string{}
	for pkg, r := range results[step{server: s.server, module: s.module}] {
		for test, o := range r.Tests {
			if o.Rounds > 0 && !ran[pkg+"."+test] {
				tests[pkg] = append(tests[pkg], test)
			}
		}
		slices.Sort(tests[pkg])
	}
	return tests
}

// minutes returns how long all tests took.
func minutes(results map[step]map[string]result) (sum float64) {
	for _, packages := range results {
		for _, r := range packages {
			sum += r.Seconds / 60
		}
	}
	return sum
}

// clean returns the commit that is checked out. Nothing but the report may differ from it.
func clean(ctx context.Context, but string) (commit string, err error) {
	changed, err := output(ctx, "git", "status", "--porcelain", "--", ".", ":!"+but)
	if err != nil {
		return "", err
	}
	if changed != "" {
		return "", fmt.Errorf("commit first, so that the report says what was tested:\n%s", changed)
	}
	// The report is a commit of its own, about the one before it.
	commit, err = output(ctx, "git", "log", "-1", "--format=%h", "--", ".", ":!"+but)
	return strings.TrimSpace(commit), err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return string(text), nil
}

// result is what became of the tests of a package.
type result struct {
	Built   string // see builds
	Passed  bool
	Seconds float64
	Tests   map[string]outcome // by name; subtests count for their test
	Faults  map[string]int     // that were injected, see redistest.Injected
	Earlier []string           // what failed in earlier runs of the same package
}

// failures returns what failed, in earlier runs too: tests, or the package as a whole.
func (r result) failures(pkg string) []string {
	all := slices.Clone(r.Earlier)
	if r.Passed {
		return all
	}
	for _, test := range sorted(r.Tests) {
		if r.Tests[test].Failed {
			all = append(all, test)
		}
	}
	if len(all) == len(r.Earlier) {
		all = append(all, path.Base(pkg))
	}
	return all
}

// outcome is what became of a test.
type outcome struct {
	Skipped bool
	Failed  bool
	Rounds  int // the sum of its attribute of this name, see faulttest.Rounds
	Seconds float64
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Key, Value, Output string
	Elapsed                                   float64
}

// passed reports whether a package passed with all of these tests.
func (r result) passed(tests []string) bool {
	for _, test := range tests {
		if _, ran := r.Tests[test]; !ran {
			return false
		}
	}
	return r.Passed
}

// run runs the packages that have not passed yet, and returns the results of all: of all their tests, or only of some, by package.
func (s step) run(ctx context.Context, dir string, tests map[string][]string) (map[string]result, error) {
	packages, err := output(ctx, "go", "-C", s.module, "list", "./...")
	if err != nil {
		return nil, err
	}
	built, err := s.builds(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a cache
		return nil, err
	}
	all, earlier := map[string]result{}, map[string][]string{}
	var open []string
	for pkg := range strings.FieldsSeq(packages) {
		if tests != nil && tests[pkg] == nil {
			continue
		}
		var r result
		text, err := os.ReadFile(file(dir, pkg))
		if err == nil && json.Unmarshal(text, &r) == nil && r.Built == built[pkg] {
			if r.passed(tests[pkg]) {
				all[pkg] = r
				continue
			}
			earlier[pkg] = r.failures(pkg)
		}
		open = append(open, pkg)
	}
	fmt.Printf("=== %v: %d packages, %d of them passed before\n", s, len(open)+len(all), len(all))
	if len(open) == 0 {
		return all, nil
	}
	args := []string{s.server, "go", "-C", s.module, "test", "-json", "-count=1", "-timeout=100m", "-vet=off", "-p=3", "-parallel=6"}
	if s.long { // these load the machine: with more at a time they would measure each other
		args = append(args, "-p=2", "-parallel=3")
	}
	if tests != nil {
		var names []string
		for _, pkg := range open {
			names = append(names, tests[pkg]...)
		}
		args = append(args, "-run=^("+strings.Join(names, "|")+")$")
	}
	args = append(args, open...)
	cmd := exec.CommandContext(ctx, ".ci/with-server", args...)
	cmd.Env = append(os.Environ(), "REDLATCH_REQUIRE_REDIS=1", "REDLATCH_LONG=1", "REDLATCH_REQUIRE_JAVA=1", "REDLATCH_REQUIRE_CHROMIUM=1", "REDLATCH_SOAK="+map[bool]string{true: "1"}[s.long])
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed, err := collect(lines, func(pkg string, r result) error {
		r.Built, r.Earlier = built[pkg], earlier[pkg]
		all[pkg] = r
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return os.WriteFile(file(dir, pkg), text, 0o644) //nolint:gosec // a cache
	})
	_, _ = io.Copy(io.Discard, lines) // what was not read would hold up the tests
	err = errors.Join(err, cmd.Wait())
	if len(failed) > 0 {
		return all, fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return all, err
}

// builds returns what each package of a step and its tests are built of, in short: another text after any change of their sources, of what
// they import, or of the server. Tests that read documents belong to the commit that has these.
func (s step) builds(ctx context.Context) (map[string]string, error) {
	// A package is not compiled again if only the body of a function has changed far below it, so all that it is linked with counts.
	lines, err := output(ctx, "go", "-C", s.module, "list", "-deps", "-export", "-test",
		"-f", `{{.ImportPath}}{{"\t"}}{{.BuildID}}{{range .Deps}}{{"\t"}}{{.}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	ids, deps := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(lines) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		ids[f[0]], deps[f[0]] = f[1], f[2:]
	}
	read := map[string]string{} // by package
	for pkg, paths := range map[string][]string{
		module:                            {"docs/operations.md"}, // has the permissions that tests try
		module + "/internal/core":         {"*.lua"},              // the commands that scripts need
		module + "/internal/test/doctest": {".", ":!docs/proof.md"},
		module + "/interop":               {"interop", "docs/migrating.md"},
	} {
		if read[pkg], err = output(ctx, "git", append([]string{"log", "-1", "--format=%H", "--"}, paths...)...); err != nil {
			return nil, err
		}
	}
	sums := map[string]hash.Hash{}
	for _, variant := range sorted(ids) {
		name, _, _ := strings.Cut(variant, " ")
		pkg := strings.TrimSuffix(strings.TrimSuffix(name, ".test"), "_test")
		if sums[pkg] == nil {
			sums[pkg] = sha256.New()
			sums[pkg].Write([]byte(title(s) + read[pkg]))
		}
		sums[pkg].Write([]byte(variant + ids[variant]))
		for _, dep := range deps[variant] {
			sums[pkg].Write([]byte(ids[dep]))
		}
	}
	built := map[string]string{}
	for pkg, sum := range sums {
		built[pkg] = hex.EncodeToString(sum.Sum(nil)[:8])
	}
	return built, nil
}

func file(dir, pkg string) string {
	return filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".json")
}

// collect reads the events of go test, and calls done for each package that has ended. It prints what a package that failed had to
// say, and returns their names.
func collect(lines io.Reader, done func(pkg string, r result) error) (failed []string, err error) {
	open, said := map[string]result{}, map[string]*strings.Builder{}
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 1<<24)
	for scan.Scan() {
		var e event
		if json.Unmarshal(scan.Bytes(), &e) != nil || e.Package == "" {
			fmt.Println(scan.Text()) // of the build
			continue
		}
		r := open[e.Package]
		if r.Tests == nil {
			r.Tests, said[e.Package] = map[string]outcome{}, &strings.Builder{}
		}
		top, _, _ := strings.Cut(e.Test, "/")
		o, known := r.Tests[top]
		switch {
		case e.Action == "output":
			if counts, found := strings.CutPrefix(e.Output, redistest.InjectedLine); found {
				if err := json.Unmarshal([]byte(counts), &r.Faults); err != nil {
					return failed, err
				}
			}
			said[e.Package].WriteString(e.Output)
		case e.Action == "attr" && e.Key == "rounds":
			n, _ := strconv.Atoi(e.Value)
			o.Rounds += n
		case e.Action == "skip" && e.Test != "":
			o.Skipped = o.Skipped || e.Test == top
		case e.Action == "fail" && e.Test != "":
			o.Failed = true
		}
		if e.Test == top && e.Elapsed > 0 {
			o.Seconds = e.Elapsed
		}
		if strings.HasPrefix(top, "Test") || known {
			r.Tests[top] = o
		}
		open[e.Package] = r
		if e.Test != "" || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		r.Passed, r.Seconds = e.Action != "fail", e.Elapsed
		if !r.Passed {
			failed = append(failed, e.Package)
			fmt.Print(said[e.Package])
		}
		fmt.Printf("%-4s %s %.0fs\n", e.Action, e.Package, e.Elapsed)
		for test, o := range r.Tests {
			if o.Seconds > 60 {
				fmt.Printf("     %s %.0fs\n", test, o.Seconds)
			}
		}
		delete(said, e.Package)
		if err := done(e.Package, r); err != nil {
			return failed, err
		}
	}
	return failed, scan.Err()
}

// sorted returns the keys of a map in order.
func sorted[K interface{ ~int | ~string }, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
