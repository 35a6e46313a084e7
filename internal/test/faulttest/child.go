package faulttest

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

const (
	childEnv   = "REDLATCH_TEST_CHILD"
	childLimit = 20 * time.Second // bounds a wait for a child's line, or its end
)

// children are the functions that a child process may run, by name.
//
//nolint:gochecknoglobals // Written by TestMain before any test runs.
var children = map[string]func(args []string){}

// RegisterChild names a function that [StartChild] can run in another process. TestMain calls it, before
// [RunChildIfAsked].
func RegisterChild(name string, fn func(args []string)) { children[name] = fn }

// RunChildIfAsked runs the child function that this process was started for, and exits with 0 after it. In the process
// of the tests it does nothing. TestMain calls it before anything else but [RegisterChild].
func RunChildIfAsked() {
	name := os.Getenv(childEnv)
	if name == "" {
		return
	}
	fn, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "faulttest: no child is registered as %q\n", name)
		os.Exit(2)
	}
	fn(os.Args[1:])
	os.Exit(0)
}

// Emit is for child functions: it sends a line to the test, which sees it with [Child.Next] and [Child.WaitFor].
func Emit(format string, args ...any) { fmt.Println(fmt.Sprintf(format, args...)) }

// Child is another process that runs a registered function.
type Child struct {
	tb     testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File
	stderr *os.File
	lines  chan string   // what the child emits; closed when it has ended
	done   chan struct{} // closed when the test is over
	exited chan struct{} // closed when the process has been waited for
	err    error         // of the process; set before exited is closed
	wg     sync.WaitGroup
}

// StartChild starts the test binary again as a process of its own, which runs the function registered under name with
// these args. It is killed with the test, and on Linux with the test binary. What it writes to its standard error is
// logged if the test fails.
func StartChild(tb testing.TB, name string, args ...string) *Child {
	tb.Helper()
	return StartChildEnv(tb, nil, name, args...)
}

// StartChildEnv is [StartChild] with more environment, in the form KEY=value.
func StartChildEnv(tb testing.TB, env []string, name string, args ...string) *Child {
	tb.Helper()
	if _, ok := children[name]; !ok {
		tb.Fatalf("faulttest: no child is registered as %q", name)
	}
	c := &Child{
		tb: tb, name: name,
		lines: make(chan string), done: make(chan struct{}), exited: make(chan struct{}),
	}
	if err := c.start(append(env, childEnv+"="+name), args); err != nil {
		tb.Fatalf("faulttest: start child %s: %v", name, err)
	}
	c.wg.Go(c.read) // end waits for it
	c.wg.Go(c.wait) // end waits for it
	tb.Cleanup(c.end)
	return c
}

func (c *Child) start(env, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	stderr, err := os.Create(c.tb.TempDir() + "/stderr")
	if err != nil {
		return err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return err
	}
	c.cmd = exec.Command(self, args...)
	// Under the race detector a process would stay for a second after its end.
	c.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stdout, c.cmd.Stderr = out, stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	c.stdout, c.stderr = stdout, stderr
	redistest.DieWithParent(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return err
	}
	return out.Close()
}

func (c *Child) read() {
	defer close(c.lines)
	scanner := bufio.NewScanner(c.stdout)
	for scanner.Scan() {
		select {
		case c.lines <- scanner.Text():
		case <-c.done:
			return
		}
	}
}

func (c *Child) wait() {
	c.err = c.cmd.Wait()
	close(c.exited)
}

// end kills the child and logs what it complained of.
func (c *Child) end() {
	close(c.done)
	c.kill()
	c.wg.Wait()
	if c.tb.Failed() {
		if text, err := os.ReadFile(c.stderr.Name()); err == nil && len(text) > 0 {
			c.tb.Logf("child %s: %s", c.name, text)
		}
	}
	_, _ = c.stdout.Close(), c.stderr.Close() // Nothing was written here that could be lost.
}

// Pid is the process id of the child.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Next waits for the next line that the child emits. It fails the test when none comes within 20 s, or the child ends.
func (c *Child) Next() string {
	c.tb.Helper()
	line, ok := c.next(time.After(childLimit))
	if !ok {
		c.tb.Fatalf("faulttest: child %s: no line any more", c.name)
	}
	return line
}

// WaitFor waits for a line that begins with prefix and returns it; lines before it are skipped. It fails the test when
// none comes within 20 s, or the child ends.
func (c *Child) WaitFor(prefix string) string {
	c.tb.Helper()
	limit := time.After(childLimit)
	for {
		line, ok := c.next(limit)
		if !ok {
			c.tb.Fatalf("faulttest: child %s: no line %q any more", c.name, prefix)
		}
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
}

// Lines yields what the child emits until it ends, also what it had emitted when it was killed.
func (c *Child) Lines() iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range c.lines {
			if !yield(line) {
				return
			}
		}
	}
}

func (c *Child) next(limit <-chan time.Time) (string, bool) {
	select {
	case line, ok := <-c.lines:
		return line, ok
	case <-limit:
		return "", false
	}
}

// Send writes a line to the child's standard input.
func (c *Child) Send(line string) {
	c.tb.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.tb.Errorf("faulttest: child %s: %v", c.name, err)
	}
}

// Kill ends the child with SIGKILL and waits until it is gone. It does nothing to one that has ended.
func (c *Child) Kill() {
	if !c.hasExited() {
		redistest.Injected("process killed")
	}
	c.kill()
}

func (c *Child) hasExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

func (c *Child) kill() {
	_ = c.cmd.Process.Kill() // It fails only when the process has ended.
	<-c.exited
}

// Stop halts the child with SIGSTOP, and returns once it stands still.
func (c *Child) Stop() {
	c.tb.Helper()
	redistest.Injected("process stopped by SIGSTOP")
	if err := redistest.Freeze(c.cmd.Process); err != nil {
		c.tb.Errorf("faulttest: stop child %s: %v", c.name, err)
	}
}

// Cont lets a stopped child go on.
func (c *Child) Cont() {
	c.tb.Helper()
	if err := redistest.Thaw(c.cmd.Process); err != nil {
		c.tb.Errorf("faulttest: continue child %s: %v", c.name, err)
	}
}

// Wait waits until the child has ended, and returns an *exec.ExitError where its code is not 0 or it was killed. Lines
// that nobody read are lost. It fails the test when the child still runs after 20 s.
func (c *Child) Wait() error {
	c.tb.Helper()
	limit := time.After(childLimit)
	for {
		select {
		case <-c.exited:
			return c.err
		case _, ok := <-c.lines:
			if !ok {
				<-c.exited
				return c.err
			}
		case <-limit:
			c.tb.Fatalf("faulttest: child %s still runs", c.name)
		}
	}
}
