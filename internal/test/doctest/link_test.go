package doctest_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// The client's methods reach every kind of object, so this holds only as long as nothing makes a manager before it is needed.
func TestProgramsWithoutQueuesLinkNoCodeOfTheirs(t *testing.T) {
	if runtime.GOOS != "linux" {
		redistest.Skip(t, "it reads Linux binaries")
	}
	locks, queues := linked(t, "trylock"), linked(t, "ordertimeout")
	require.NotZero(t, locks["redlatch/internal/lease"])
	require.NotZero(t, queues["redlatch/internal/queue"])
	assert.Zero(t, locks["redlatch/internal/queue"])
	assert.Zero(t, locks["redlatch/rdelayedqueue"])
	assert.Zero(t, locks["redlatch/codec"])
}

// linked builds an example and returns how many methods of each package it holds.
func linked(t *testing.T, example string) map[string]int {
	t.Helper()
	program := filepath.Join(t.TempDir(), example)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../../examples/"+example)
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	file, err := elf.Open(program)
	require.NoError(t, err)
	defer file.Close()
	symbols, err := file.Symbols()
	require.NoError(t, err)
	methods := map[string]int{}
	for _, s := range symbols {
		if name, _, ok := strings.Cut(s.Name, ".(*"); ok && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			methods[strings.TrimPrefix(name, "github.com/redlatch/")]++
		}
	}
	return methods
}
