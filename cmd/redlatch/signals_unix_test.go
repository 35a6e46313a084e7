//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestSignalsArePassedOn(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "ALRM": syscall.SIGALRM, "CONT": syscall.SIGCONT, "WINCH": syscall.SIGWINCH} {
		r := newRig(t)
		ended := r.start(t, `trap 'echo told; exit 5' `+name+`; echo started; for i in $(seq 100); do sleep 0.05; done`)
		require.NoError(t, syscall.Kill(os.Getpid(), signal))
		assert.Equal(t, 5, <-ended, name)
		assert.Contains(t, r.out.String(), "told", name)
		locked, err := r.c.GetLock("nightly").IsLocked(t.Context())
		require.NoError(t, err)
		assert.False(t, locked)
	}
}

func TestCtrlCComesOnce(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	term := startInTerminal(t, redistest.Start(t).URL(), "lock", "run", "nightly", "--",
		"env", "-u", "REDLATCH_TEST_COMMAND", "REDLATCH_TEST_SIGNALS=1", self)
	parent := regexp.MustCompile(`child of (\d+)\n`).FindStringSubmatch(term.sees(`child of \d+\n`))
	pid, err := strconv.Atoi(parent[1])
	require.NoError(t, err)
	term.tmux("send-keys", "-t", "top", "C-c")
	term.sees("got interrupt")
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM), "after it comes what was passed on")
	text := term.sees(`exit code \d+`)
	assert.Contains(t, text, "exit code 5")
	assert.Equal(t, 1, strings.Count(text, "got interrupt"), text)
	assert.Equal(t, 1, strings.Count(text, "got terminated"), text)
}

// during runs a program, after an acquisition that does something and whose hold is released in the end.
func during(t *testing.T, ctx context.Context, acquired func()) (child *exec.Cmd, err error) {
	t.Helper()
	child = exec.Command("sleep", "5")
	released := false
	err = (&app{environment: &environment{}}).runWhile(ctx, child, time.Minute, func(context.Context) (*holding, error) {
		acquired()
		return &holding{t.Context(), func(ctx context.Context) error { released = true; return ctx.Err() }}, nil
	})
	assert.True(t, released)
	return child, err
}

func TestSignalThatComesWithTheAnswerIsPassedOn(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		came := make(chan os.Signal, 1)
		signal.Notify(came, s)
		_, err := during(t, t.Context(), func() {
			assert.NoError(t, syscall.Kill(os.Getpid(), s))
			<-came
		})
		signal.Stop(came)
		var ended *exit
		require.ErrorAs(t, err, &ended)
		assert.Equal(t, 128+int(s), ended.code)
	}
}

func TestProgramIsNotStartedAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	child, err := during(t, ctx, end)
	require.ErrorIs(t, err, context.Canceled)
	assert.Nil(t, child.Process)
}
