package core

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The scripts of the grid and of near caches are left out: Check asks for no more rights than locks, queues and their like need.
//
// F28
func TestProbeAsksForEveryCommandOfTheScripts(t *testing.T) {
	calls := regexp.MustCompile(`redis\.p?call\(\s*'([a-z]+)'`)
	want := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".lua" || strings.Contains(path, "faulttest") || strings.Contains(path, "/grid/") || strings.Contains(path, "/near/") || strings.Contains(path, "benchmarks") || strings.Contains(path, "examples") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, call := range calls.FindAllSubmatch(text, -1) {
			want[string(call[1])] = true
		}
		return err
	}))
	delete(want, "publish") // asked for with its channel
	delete(want, "info")    // optional
	have := strings.Fields(scriptCommands)
	for command := range want {
		assert.True(t, slices.Contains(have, command), "%s", command)
	}
}
