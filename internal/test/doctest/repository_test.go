package doctest_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/redlatch/redlatch"

// repository returns the module's top, as seen from a test of this package.
func repository() fs.FS { return os.DirFS("../../..") }

// files returns the paths of the repository's files for which keep is true, nested modules included.
func files(t *testing.T, keep func(name string) bool) []string {
	t.Helper()
	var found []string
	require.NoError(t, fs.WalkDir(repository(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "testdata"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if keep(name) {
			found = append(found, name)
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}

// nested reports whether the file belongs to a module below this one.
func nested(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, err := fs.Stat(repository(), path.Join(dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// goFile reports whether the file is Go code of this module.
func goFile(name string) bool { return strings.HasSuffix(name, ".go") && !nested(name) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(repository(), name)
	require.NoError(t, err)
	return string(text)
}
