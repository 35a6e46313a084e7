package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// asProgram has the test binary run as the program, which starts itself for its workers.
const asProgram = "QUICKSTART_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(redistest.Run(m))
}

func TestWorkersAreProcessesOnARedis(t *testing.T) {
	server := redistest.Start(t)
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-redis", server.URL())
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "each worker is a process")
	rows := regexp.MustCompile(`(?m)^ +\d+ +\d+ +(\d+) +\d+$`).FindAllStringSubmatch(string(out), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		assert.Equal(t, "1", row[1], "closed once: %s", row[0])
	}
	keys, err := server.Client(t).Keys(t.Context(), "quickstart:*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys, "it leaves nothing behind")
}
