package doctest_test

import (
	"io/fs"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// A module that names no release of another one finds that in the checkout, also without go.work.
func TestModulesFindEachOtherInACheckout(t *testing.T) {
	for _, file := range files(t, func(name string) bool { return path.Base(name) == "go.mod" }) {
		text := read(t, file)
		for _, required := range regexp.MustCompile(`(?m)^(?:require)?\s+(`+module+`\S*) v0\.0\.0`).FindAllStringSubmatch(text, -1) {
			replaced := regexp.MustCompile(`(?m)^(?:replace)?\s+` + required[1] + ` => (\S+)$`).FindStringSubmatch(text)
			if !assert.NotNil(t, replaced, "%s: no replace of %s", file, required[1]) {
				continue
			}
			found := path.Join(path.Dir(file), replaced[1])
			assert.Equal(t, path.Join(".", strings.TrimPrefix(required[1], module)), found, "%s: %s", file, required[1])
			_, err := fs.Stat(repository(), path.Join(found, "go.mod"))
			assert.NoError(t, err)
		}
	}
}

// Linters and tests of nested modules go by the list that make has.
func TestNestedModulesAreLintedAndTested(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		redistest.Skip(t, "no make on the PATH")
	}
	list := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-s", "-C", "../../..", "modules")
	listed, err := list.Output()
	require.NoError(t, err)
	var found []string
	for _, file := range files(t, func(name string) bool { return path.Base(name) == "go.mod" && name != "go.mod" }) {
		found = append(found, path.Dir(file))
	}
	assert.ElementsMatch(t, found, strings.Fields(string(listed)), "NESTED in the Makefile and the modules in the tree")
}
