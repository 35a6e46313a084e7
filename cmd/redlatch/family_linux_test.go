package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// launched is the command as a process of its own, without a terminal. Its program is a script, in a folder of its own.
type launched struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
}

// launch starts the command with arguments that end with a script.
func (r *rig) launch(t *testing.T, args ...string) *launched {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return r.process(t, self, args...)
}

// process starts a program with what the command needs to know.
func (r *rig) process(t *testing.T, name string, args ...string) *launched {
	t.Helper()
	l := &launched{t, t.TempDir(), exec.Command(name, args...)}
	require.NoError(t, unix.Mkfifo(filepath.Join(l.dir, "end"), 0o600))
	out, err := os.Create(filepath.Join(l.dir, "output")) // a pipe would keep Wait from ending before all that have it
	require.NoError(t, err)
	defer func() { assert.NoError(t, out.Close()) }()
	l.cmd.Dir, l.cmd.Stdout, l.cmd.Stderr = l.dir, out, out
	l.cmd.Env = append(os.Environ(), "REDLATCH_TEST_COMMAND=1", "REDIS_URL="+r.url)
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, l.cmd.Start())
	t.Cleanup(func() {
		for _, pid := range l.pids() {
			_ = unix.Kill(pid, unix.SIGKILL) // it has ended, unless the test has failed
		}
	})
	return l
}

func (l *launched) output() string {
	text, err := os.ReadFile(filepath.Join(l.dir, "output"))
	require.NoError(l.t, err)
	return string(text)
}

// pids returns what processes of the script have written: "pid 17".
func (l *launched) pids() (all []int) {
	for _, found := range regexp.MustCompile(`(?m)^pid (\d+)$`).FindAllStringSubmatch(l.output(), -1) {
		pid, err := strconv.Atoi(found[1])
		require.NoError(l.t, err)
		all = append(all, pid)
	}
	return all
}

// says waits until a pattern is in the output.
func (l *launched) says(pattern string) {
	l.t.Helper()
	redistest.Eventually(l.t, 20*time.Second, "it says so", func() error {
		if text := l.output(); !regexp.MustCompile(pattern).MatchString(text) {
			return fmt.Errorf("%s is not in %s", pattern, text)
		}
		return nil
	})
}

// code waits until the command has ended and returns its exit code.
func (l *launched) code() int {
	l.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- l.cmd.Wait() }()
	select {
	case err := <-ended:
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			require.NoError(l.t, err)
		}
	case <-time.After(20 * time.Second):
		require.NoError(l.t, l.cmd.Process.Kill())
		require.Fail(l.t, "it does not end", l.output())
	}
	return l.cmd.ProcessState.ExitCode()
}

// gone reports whether processes have ended.
func gone(pids []int) bool {
	for _, pid := range pids {
		if unix.Kill(pid, 0) == nil {
			return false
		}
	}
	return true
}

// crowdScript is a script with a child that it waits for, one in the background, and a daemon that two forks and a session of its own have
// taken away from it.
const crowdScript = `
	sh -c 'echo pid $$; exec sleep 60' &
	setsid sh -c "sh -c 'echo pid \$\$; exec sleep 60' &"
	sh -c 'echo pid $$; exec sleep 60'
	echo done`

func TestAllThatAProgramHasStartedEndsWithIt(t *testing.T) {
	for _, noun := range []string{"lock", "elect"} {
		for _, s := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
			t.Run(fmt.Sprint(noun, " ", s), func(t *testing.T) {
				r := newRig(t)
				l := r.launch(t, noun, "run", "nightly", "--lease", "6s", "--", "sh", "-c", crowdScript)
				l.says(`(?s)(pid.*){3}`)
				want := exitLost
				if s == 0 {
					r.must(t, "lock", "force", "nightly", "--yes")
				} else {
					want = 128 + int(s)
					require.NoError(t, l.cmd.Process.Signal(s))
				}
				assert.Equal(t, want, l.code(), l.output())
				assert.True(t, gone(l.pids()), l.output())
				assert.NotContains(t, l.output(), "done")
				locked, err := r.c.GetLock("nightly").IsLocked(t.Context())
				require.NoError(t, err)
				assert.False(t, locked)
			})
		}
	}
}

func TestWhatOutlivesKillAfterIsKilled(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		code   int
	}{
		"program": {`trap '' TERM; echo pid $$; while :; do sleep 0.05; done`, 128 + 9},
		"daemon":  {`setsid sh -c "trap '' TERM; sh -c 'echo pid \$\$; while :; do sleep 0.05; done' &"; exec sleep 60`, 128 + 15},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRig(t).launch(t, "lock", "run", "nightly", "--kill-after", "200ms", "--", "sh", "-c", tc.script)
			l.says(`pid \d+`)
			require.NoError(t, l.cmd.Process.Signal(syscall.SIGTERM))
			assert.Equal(t, tc.code, l.code(), l.output())
			assert.True(t, gone(l.pids()), l.output())
			assert.Contains(t, l.output(), "redlatch: SIGKILL, 200ms after SIGTERM, to ")
		})
	}
}

func TestLossOfTheLockHasAnEndToo(t *testing.T) {
	r := newRig(t)
	l := r.launch(t, "lock", "run", "nightly", "--lease", "1s", "--kill-after", "200ms", "--", "sh", "-c", `trap '' TERM; echo pid $$; while :; do sleep 0.05; done`)
	l.says(`pid \d+`)
	r.must(t, "lock", "force", "nightly", "--yes")
	assert.Equal(t, exitLost, l.code(), l.output())
	assert.True(t, gone(l.pids()), l.output())
}

func TestLockIsHeldUntilTheLastOfThemHasEnded(t *testing.T) {
	r := newRig(t)
	l := r.launch(t, "lock", "run", "nightly", "--", "sh", "-c", `setsid sh -c "sh -c 'echo pid \$\$; read line < end' &"; exit 3`)
	l.says(`pid \d+`)
	l.says(fmt.Sprintf(`redlatch: the program has ended; waiting for what it has started: %d sh\n`, l.pids()[0]))
	locked, err := r.c.GetLock("nightly").IsLocked(t.Context())
	require.NoError(t, err)
	assert.True(t, locked)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "end"), []byte("now\n"), 0o600))
	assert.Equal(t, 3, l.code(), "that of the program")
	locked, err = r.c.GetLock("nightly").IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)
}

// A SIGHUP that has the program reload says nothing of what it leaves behind.
func TestHandledSignalEndsNothingThatIsLeft(t *testing.T) {
	l := newRig(t).launch(t, "lock", "run", "nightly", "--", "sh", "-c",
		`trap '(read line < end; echo finished) & exit 0' HUP; echo pid $$; while :; do sleep 0.05; done`)
	l.says(`pid \d+`)
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGHUP))
	l.says(`waiting for what it has started`)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "end"), []byte("now\n"), 0o600))
	assert.Equal(t, 0, l.code(), l.output())
	assert.Contains(t, l.output(), "finished")
}

func TestProgramIsSignalledWhereProcDoesNotShowIt(t *testing.T) {
	hidden := []string{"--mount", "sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"}
	if err := exec.CommandContext(t.Context(), "unshare", append(hidden, "true")...).Run(); err != nil {
		redistest.Skip(t, "/proc can be hidden by root only, with unshare")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	l := newRig(t).process(t, "unshare", append(hidden, self, "lock", "run", "nightly", "--", "sh", "-c", "echo pid $$; exec sleep 60")...)
	l.says(`pid \d+`)
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, l.code(), l.output())
	assert.True(t, gone(l.pids()), l.output())
}

func TestSignalOfTheProgramGoesToItAlone(t *testing.T) {
	l := newRig(t).launch(t, "lock", "run", "nightly", "--", "sh", "-c", `trap 'echo told' USR1; sleep 60 & echo pid $!; while :; do wait; done`)
	l.says(`pid \d+`)
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGUSR1))
	l.says(`told`)
	assert.False(t, gone(l.pids()))
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, l.code(), l.output())
}

// A shell that becomes the command has had children before: they are none of its business.
func TestChildrenFromBeforeAreLeftAlone(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	l := newRig(t).process(t, "sh", "-c", `sleep 60 & echo pid $!; exec "$0" "$@"`, self, "lock", "run", "nightly", "--", "sh", "-c", "echo started; sleep 60")
	l.says(`started`)
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, l.code(), l.output())
	assert.False(t, gone(l.pids()))
}

func TestWhatEndsIsReapedWhileTheProgramRuns(t *testing.T) {
	l := newRig(t).launch(t, "lock", "run", "nightly", "--", "sh", "-c", `for i in $(seq 20); do (sh -c : &); done; echo started; read line < end`)
	l.says("started")
	redistest.Eventually(t, 20*time.Second, "no process waits to be reaped", func() error {
		for _, p := range children()[l.cmd.Process.Pid] {
			if p.ended {
				return fmt.Errorf("%v", p)
			}
		}
		return nil
	})
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "end"), []byte("now\n"), 0o600))
	assert.Zero(t, l.code())
}

func TestProgramHasAGroupOfItsOwnWithoutATerminal(t *testing.T) {
	const script = `group() { read -r _ _ _ _ g _ < /proc/$1/stat; echo $g; }; [ $(group $$) = $(group $PPID) ] && echo same || echo apart`
	r := newRig(t)
	l := r.launch(t, "lock", "run", "nightly", "--", "sh", "-c", script)
	assert.Zero(t, l.code())
	assert.Equal(t, "apart\n", l.output())
	startInTerminal(t, r.url, "lock", "run", "nightly", "--", "sh", "-c", script).sees("same")
}

// A shell has what it starts in the background ignore Ctrl-C.
func TestCtrlCEndsWhatIgnoresIt(t *testing.T) {
	term := startInTerminal(t, redistest.Start(t).URL(), "lock", "run", "nightly", "--", "sh", "-c", `sleep 60 & echo pid $!; wait`)
	found := regexp.MustCompile(`pid (\d+)\n`).FindStringSubmatch(term.sees(`pid \d+\n`))
	pid, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	term.tmux("send-keys", "-t", "top", "C-c")
	assert.Contains(t, term.sees(`exit code \d+`), "exit code 130")
	assert.True(t, gone([]int{pid}))
}

func TestNameOfAProcessMayHaveAnything(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a) Z 1 (b")
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	text, err := os.ReadFile(sleep)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, text, 0o700))
	cmd := exec.Command(name, "60")
	cmd.Args[0] = "sleep" // busybox and its like look at it
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // both say how it ended
	var found []process
	for _, p := range children()[os.Getpid()] {
		if p.pid == cmd.Process.Pid {
			found = append(found, p)
		}
	}
	assert.Equal(t, []process{{cmd.Process.Pid, unix.Getpgrp(), "a) Z 1 (b", false}}, found)
	assert.True(t, strings.HasSuffix(name, found[0].name))
}
