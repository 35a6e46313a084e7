package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// asProgram has the test binary run as the program, which starts itself for its workers.
const asProgram = "QUICKSTART_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if err := start(5 * time.Minute); err != nil { // it may be slow beside other tests
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(redistest.Run(m))
}

func TestWorkersAreProcessesOnARedis(t *testing.T) {
	redistest.Long(t)
	server := redistest.Start(t)
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-redis", server.URL())
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "each worker is a process")
	for _, step := range []string{
		`[ABC]  crashes in the middle of order`,
		`B  turned away; the lease of the lock has \d\.\d\d s left: it was renewed`,
		`A  stops: rlock: lock ".*": lock lost: `,
		`A  unlocks, in vain: .*: lock not held`,
		`A  holds the lock 2 times`,
		`B  turned away after one unlock: true`,
		`A  unlocked twice; locked: false`,
	} {
		assert.Regexp(t, step, string(out))
	}
	closedOnce := regexp.MustCompile(`(?m)^ +\d+ +\d+ +1 +\d$`).FindAllString(string(out), -1)
	assert.Len(t, closedOnce, len(allOrders()), "one row for each order: closed once with the lock\n%s", out)
	keys, err := server.Client(t).Keys(t.Context(), "quickstart:*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys, "it leaves nothing behind")
}
