package doctest_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/doctest"
)

// TestFailureClassesNameTheirTests allows a list to lack a test: make readme completes it. Numbers of classes rise, and may leave
// one out, that of a class which nothing in redlatch has yet.
func TestFailureClassesNameTheirTests(t *testing.T) {
	text := read(t, "docs/failure-classes.md")
	found, err := doctest.FindClasses(repository())
	require.NoError(t, err)
	last, listed := 0, map[int]bool{}
	for _, section := range strings.Split(text, "\n## F")[1:] {
		number, _, _ := strings.Cut(section, ". ")
		class, err := strconv.Atoi(number)
		require.NoError(t, err)
		require.Greater(t, class, last, "the classes stand in their order")
		last, listed[class] = class, true
		_, list, _ := strings.Cut(section, "\nTests: ")
		tests := backquoted.FindAllStringSubmatch(list, -1)
		assert.NotEmpty(t, tests, "F%d lists no test; make readme lists those whose comments name it", class)
		for _, test := range tests {
			named := slices.ContainsFunc(slices.Collect(maps.Values(found[class])), func(tests []string) bool {
				return slices.Contains(tests, test[1])
			})
			assert.True(t, named, "F%d: no test %s has a comment that names the class; make readme mends the list", class, test[1])
		}
	}
	for class := range found {
		assert.True(t, listed[class], "comments name the class F%d, which does not exist: %v", class, found[class])
	}
}

func TestListsOfTestsFollowTheirComments(t *testing.T) {
	source := fstest.MapFS{
		"a_test.go":         {Data: []byte("package p\n\n// F1, F2: both.\nfunc TestA() {}\n\nfunc TestB() {}\n")},
		"sub/b_test.go":     {Data: []byte("package p\n\n// F2\nfunc TestC() {}\n\n// F1\nfunc TestD() {}\n")},
		"nested/go.mod":     {Data: []byte("module n\n")},
		"nested/c_test.go":  {Data: []byte("package p\n\n// F1\nfunc TestE() {}\n")},
		"sub/not_a_test.md": {Data: []byte("F1")},
	}
	found, err := doctest.FindClasses(source)
	require.NoError(t, err)
	before := "# T\n\n## F1. One\n\nText.\n\nTests: stale\nlines.\n\n## F2. Two\n\nText.\n\n## F3. Three\n\nTests: stale.\n"
	after := doctest.ListClasses(found, before)
	assert.Equal(t, "# T\n\n## F1. One\n\nText.\n\nTests: redlatch `TestA`; sub `TestD`.\n\n"+
		"## F2. Two\n\nText.\n\nTests: redlatch `TestA`; sub `TestC`.\n\n## F3. Three\n\nTests: none.\n", after)
	assert.Equal(t, after, doctest.ListClasses(found, after), "a second time changes nothing")
}
