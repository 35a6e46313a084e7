package faulttest_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func registerChildren() {
	faulttest.RegisterChild("args", func(args []string) {
		for _, arg := range args {
			faulttest.Emit("arg %s", arg)
		}
		faulttest.Emit("env %s", os.Getenv("FAULTTEST_EXTRA"))
	})
	faulttest.RegisterChild("echo", func([]string) {
		faulttest.Emit("ready")
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			faulttest.Emit("echo %s", in.Text())
		}
	})
	faulttest.RegisterChild("fail", func([]string) { os.Exit(7) })
	faulttest.RegisterChild("enter", func(args []string) {
		w := faulttest.OpenWitness(args[0], args[1])
		defer w.Close()
		faulttest.Emit("alone %t", w.Enter("child"))
		bufio.NewScanner(os.Stdin).Scan()
		w.Exit("child")
	})
	faulttest.RegisterChild("parent", func(args []string) {
		cmd := exec.Command(args[0], "60")
		redistest.DieWithParent(cmd)
		if err := cmd.Start(); err != nil {
			faulttest.Emit("%v", err)
			return
		}
		faulttest.Emit("started %d", cmd.Process.Pid)
		bufio.NewScanner(os.Stdin).Scan()
	})
}

func TestChildGetsArgsAndEnvironment(t *testing.T) {
	c := faulttest.StartChildEnv(t, []string{"FAULTTEST_EXTRA=more"}, "args", "-test.run=x", "two words")
	assert.Equal(t, "arg -test.run=x", c.Next())
	assert.Equal(t, "arg two words", c.Next())
	assert.Equal(t, "env more", c.Next())
	require.NoError(t, c.Wait())
}

func TestLinesEndWithTheChild(t *testing.T) {
	c := faulttest.StartChild(t, "args", "one", "two")
	assert.Equal(t, []string{"arg one", "arg two", "env "}, slices.Collect(c.Lines()))
	require.NoError(t, c.Wait())
}

func TestChildExitCodeIsSeen(t *testing.T) {
	var exit *exec.ExitError
	require.ErrorAs(t, faulttest.StartChild(t, "fail").Wait(), &exit)
	assert.Equal(t, 7, exit.ExitCode())
}

func TestKilledChildIsGone(t *testing.T) {
	c := faulttest.StartChild(t, "echo")
	c.WaitFor("ready")
	c.Kill()
	var exit *exec.ExitError
	require.ErrorAs(t, c.Wait(), &exit)
	process, err := os.FindProcess(c.Pid())
	require.NoError(t, err)
	require.ErrorIs(t, process.Signal(syscall.Signal(0)), os.ErrProcessDone)
	c.Kill()
}

func TestStoppedChildDoesNothingUntilContinued(t *testing.T) {
	c := faulttest.StartChild(t, "echo")
	require.Equal(t, "ready", c.Next())
	c.Stop()
	c.Send("one")
	c.Cont()
	assert.Equal(t, "echo one", c.WaitFor("echo"))
	c.Stop()
}

func TestNothingSurvivesItsParent(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	c := faulttest.StartChild(t, "parent", sleep)
	pid := strings.TrimPrefix(c.WaitFor("started"), "started ")
	c.Kill()
	redistest.Eventually(t, 5*time.Second, "grandchild dies", func() error {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z") {
			return nil
		}
		return errors.New("it runs")
	})
}
