package doctest_test

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
