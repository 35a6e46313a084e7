package doctest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/doctest"
)

// classes is how many classes of failures docs/failure-classes.md has.
const classes = 29

func TestFailureClassesNameTheirTests(t *testing.T) {
	const name = "docs/failure-classes.md"
	found, err := doctest.FindClasses(repository())
	require.NoError(t, err)
	assert.Equal(t, doctest.ListClasses(found, read(t, name)), read(t, name), "make readme mends it")
	assert.Equal(t, classes, strings.Count(read(t, name), "\n## F"))
	for class := range found {
		assert.LessOrEqual(t, class, classes, "a comment names a class that does not exist: %v", found[class])
	}
	for class := 1; class <= classes; class++ {
		assert.NotEmpty(t, found[class], "F%d has no test", class)
	}
}

func TestListsOfTestsFollowTheirComments(t *testing.T) {
	source := fstest.MapFS{
		"a_test.go":         {Data: []byte("package p\n\n// F1, F2: both.\nfunc TestA() {}\n\nfunc TestB() {}\n")},
		"sub/b_test.go":     {Data: []byte("package p\n\n// F2\nfunc TestC() {}\n\nfunc TestF01_D() {}\n")},
		"nested/go.mod":     {Data: []byte("module n\n")},
		"nested/c_test.go":  {Data: []byte("package p\n\n// F1\nfunc TestE() {}\n")},
		"sub/not_a_test.md": {Data: []byte("F1")},
	}
	found, err := doctest.FindClasses(source)
	require.NoError(t, err)
	before := "# T\n\n## F1. One\n\nText.\n\nTests: stale\nlines.\n\n## F2. Two\n\nText.\n\n## F3. Three\n\nTests: stale.\n"
	after := doctest.ListClasses(found, before)
	assert.Equal(t, "# T\n\n## F1. One\n\nText.\n\nTests: redlatch `TestA`; sub `TestF01_D`.\n\n"+
		"## F2. Two\n\nText.\n\nTests: redlatch `TestA`; sub `TestC`.\n\n## F3. Three\n\nTests: none.\n", after)
	assert.Equal(t, after, doctest.ListClasses(found, after), "a second time changes nothing")
}
