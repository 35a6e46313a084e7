package interop_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

const (
	// lease is that of renewed locks on both sides, in Java the lockWatchdogTimeout.
	lease = 3 * time.Second
	// fairWait is how long a waiter of a fair lock keeps its place, in Java the fairLockWaitTimeout.
	fairWait = 300 * time.Second
	// limit bounds every wait for what should happen at once.
	limit = 30 * time.Second
)

// shardedMode is Redisson's shardedSubscriptionMode on clusters: AUTO, or OFF from REDLATCH_SHARDED. Go's is the same.
var shardedMode = cmp.Or(os.Getenv("REDLATCH_SHARDED"), "AUTO")

// java is a process with Redisson, which does what it is told. It ends with the test binary, at the end of its input.
type java struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *os.File

	mu      sync.Mutex // guards all below
	last    int
	waiting map[int]chan reply
	threads int
	ended   bool
}

type reply struct {
	value string
	err   error
}

var errJavaEnded = errors.New("the Java process has ended")

// startJava starts a process on a single server, or one for each address, or on a cluster.
func startJava(t *testing.T, version string, cluster bool, addrs []string) *java {
	t.Helper()
	classes := built(t, version)
	topology := "single"
	if cluster {
		topology = "cluster"
	}
	j, err := launchJava(classes, append([]string{
		topology, millis(lease), millis(fairWait), shardedMode,
	}, addrs...))
	if err != nil {
		t.Fatalf("start java: %v", err)
	}
	return j
}

func launchJava(classes string, args []string) (*java, error) {
	stderr, err := os.CreateTemp("", "interop-java-*.log") // It outlives the test.
	if err != nil {
		return nil, err
	}
	if err := os.Remove(stderr.Name()); err != nil {
		return nil, err
	}
	j := &java{stderr: stderr, waiting: map[int]chan reply{}}
	j.cmd = exec.Command("java", append([]string{
		// It starts faster, and leaves the cores to the others.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes, "Peer",
	}, args...)...)
	j.cmd.Stderr = stderr
	redistest.DieWithParent(j.cmd)
	if j.stdin, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	ready := make(chan reply, 1)
	j.waiting[0] = ready
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go j.read(stdout) // ends with the process
	select {
	case r := <-ready:
		if r.err == nil {
			return j, nil
		}
		err = r.err
	case <-time.After(limit):
		err = errors.New("it is not ready")
	}
	err = fmt.Errorf("%w: %s", err, j.complaints())
	return nil, errors.Join(err, j.kill())
}

// read hands the replies to those who wait for them.
func (j *java) read(stdout io.Reader) {
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		number, rest, _ := strings.Cut(scanner.Text(), " ")
		state, value, _ := strings.Cut(rest, " ")
		id, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		r := reply{value: value}
		if state == "error" {
			r = reply{err: errors.New(value)}
		}
		j.mu.Lock()
		if ch, ok := j.waiting[id]; ok {
			ch <- r
			delete(j.waiting, id)
		}
		j.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
	for id, ch := range j.waiting {
		ch <- reply{err: errJavaEnded}
		delete(j.waiting, id)
	}
}

// thread returns a name for a thread of Java that no other caller has.
func (j *java) thread() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.threads++
	return fmt.Sprintf("thread-%d", j.threads)
}

// send has the thread run a command once it has done those before, and returns where the reply comes.
func (j *java) send(thread string, words ...string) <-chan reply {
	ch := make(chan reply, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		ch <- reply{err: errJavaEnded}
		return ch
	}
	j.last++
	j.waiting[j.last] = ch
	if _, err := fmt.Fprintf(j.stdin, "%d %s %s\n", j.last, thread, strings.Join(words, " ")); err != nil {
		delete(j.waiting, j.last)
		ch <- reply{err: err}
	}
	return ch
}

// ask has the thread run a command and waits for the reply.
func (j *java) ask(thread string, words ...string) (string, error) {
	select {
	case r := <-j.send(thread, words...):
		return r.value, r.err
	case <-time.After(limit):
		return "", fmt.Errorf("java: no reply to %q within %v", words, limit)
	}
}

// must is ask for what does not fail.
func (j *java) must(t *testing.T, words ...string) string {
	t.Helper()
	value, err := j.ask(j.thread(), words...)
	if err != nil {
		t.Fatalf("java: %q: %v", words, err)
	}
	return value
}

// awaitThread waits until a thread of Java waits for a message about the object.
func (j *java) awaitThread(t *testing.T, kind, name string) {
	t.Helper()
	redistest.Eventually(t, limit, "thread that waits for "+name, func() error {
		waits, err := j.ask("observer", "waits", kind, name)
		if err == nil && waits != "true" {
			err = errors.New("none waits")
		}
		return err
	})
}

// complaints are what the process has written to its standard error.
func (j *java) complaints() string {
	text, err := io.ReadAll(io.NewSectionReader(j.stderr, 0, 1<<16))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// kill ends the process with SIGKILL.
func (j *java) kill() error {
	_ = j.cmd.Process.Kill() // It fails only when the process has ended.
	_ = j.cmd.Wait()         // It was killed.
	return errors.Join(j.stderr.Close())
}

// stop ends the process by the end of its input.
func (j *java) stop() error {
	_ = j.stdin.Close() // The process may have ended.
	ended := make(chan error, 1)
	go func() { ended <- j.cmd.Wait() }()
	select {
	case err := <-ended:
		return errors.Join(err, j.stderr.Close())
	case <-time.After(5 * time.Second):
		_ = j.cmd.Process.Kill() // It fails only when the process has ended.
		return errors.New("java: the end of the input did not end the process")
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// shared are the processes that all tests use.
var shared struct {
	mu   sync.Mutex // guards java
	java map[string]*java
}

// sharedJava returns the first or the second of the two processes.
func sharedJava(t *testing.T, which int, version string, cluster bool, addrs []string) *java {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	key := fmt.Sprint(which, version, cluster, addrs)
	if j, ok := shared.java[key]; ok {
		return j
	}
	if shared.java == nil {
		shared.java = map[string]*java{}
	}
	j := startJava(t, version, cluster, addrs)
	shared.java[key] = j
	return j
}

// stopSharedJava ends the processes and reports whether all of them ended.
func stopSharedJava() bool {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, j := range shared.java {
		errs = append(errs, j.stop())
	}
	err := errors.Join(errs...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return err == nil
}
