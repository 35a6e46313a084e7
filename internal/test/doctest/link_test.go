package doctest_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// mostAbove is by how many percent a program that only locks may be larger than one that uses go-redis alone. Most of it
// is the library. 3.3 are MessagePack, the default codec of objects that the client has methods for: it fills tables with
// its coders when it is initialised, so a blank import of it costs as much. It is 16.6 with Go 1.26 and 17.1 with Go 1.25.
const mostAbove = 17.5

func TestProgramThatOnlyLocksIsSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		redistest.Skip(t, "it compares Linux binaries")
	}
	size := func(program string) int64 {
		info, err := os.Stat(build(t, "testdata/"+program))
		require.NoError(t, err)
		return info.Size()
	}
	locks, goRedis := size("locks"), size("goredis")
	above := 100 * float64(locks-goRedis) / float64(goRedis)
	t.Logf("a program that only locks has %d bytes, one with go-redis alone %d: %.1f %% more", locks, goRedis, above)
	assert.LessOrEqual(t, above, mostAbove, "percent; go build -ldflags=-dumpdep says what needs what")
}

// The client's methods reach every kind of object, so this holds only as long as nothing makes a manager before it is needed.
func TestProgramsWithoutQueuesLinkNoCodeOfTheirs(t *testing.T) {
	if runtime.GOOS != "linux" {
		redistest.Skip(t, "it reads Linux binaries")
	}
	locks, queues := linked(t, "testdata/locks"), linked(t, "../../../examples/ordertimeout")
	require.NotZero(t, locks["redlatch/internal/lease"])
	require.NotZero(t, queues["redlatch/internal/queue"])
	assert.Zero(t, locks["redlatch/internal/queue"])
	assert.Zero(t, locks["redlatch/rdelayedqueue"])
	assert.Zero(t, locks["redlatch/codec"])
}

// Scripts are data that nothing computes at the start, so the linker drops those that nobody calls.
func TestProgramThatOnlyLocksLinksNoOtherScripts(t *testing.T) {
	program, err := os.ReadFile(build(t, "testdata/locks"))
	require.NoError(t, err)
	assert.True(t, bytes.Contains(program, []byte(read(t, "internal/reentrant/acquire.lua"))))
	for _, name := range files(t, func(name string) bool { return path.Ext(name) == ".lua" && !nested(name) }) {
		if dir := path.Dir(name); dir != "internal/reentrant" && dir != "internal/core" && dir != "internal/presence" && dir != "internal/pipeline" {
			assert.False(t, bytes.Contains(program, []byte(read(t, name))), name)
		}
	}
}

// build builds a program from its folder and returns where it is.
func build(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	command := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+dir)
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// linked builds a program and returns how many methods of each package it holds.
func linked(t *testing.T, dir string) map[string]int {
	t.Helper()
	file, err := elf.Open(build(t, dir))
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
