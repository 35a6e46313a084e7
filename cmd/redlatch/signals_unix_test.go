//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSignalsArePassedOn(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "ALRM": syscall.SIGALRM, "CONT": syscall.SIGCONT, "WINCH": syscall.SIGWINCH} {
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
