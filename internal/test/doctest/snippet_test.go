package doctest_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/doctest"
)

const program = `package main

func main() {
	run()
}

func run() {
	if true {
		// snippet: greet
		greet("a")

		greet("b")
		// end snippet
	}
}

func Example() {
	greet("c")

	// Output:
	// c
}
`

func TestRewriteReplacesWhatMarkersName(t *testing.T) {
	source := fstest.MapFS{"demo/main.go": {Data: []byte(program)}}
	before := "# T\n\n<!-- code: demo/main.go#greet -->\n```go\nstale\n```\n\n```sh\nmake\n```\n\n" +
		"<!-- code: demo/main.go#Example -->\n\n```go\n```\n<!-- code: demo/main.go#run -->\n```go\n```\nend\n"

	after, err := doctest.Rewrite(source, before)
	require.NoError(t, err)
	assert.Equal(t, "# T\n\n<!-- code: demo/main.go#greet -->\n```go\ngreet(\"a\")\n\ngreet(\"b\")\n```\n\n```sh\nmake\n```\n\n"+
		"<!-- code: demo/main.go#Example -->\n\n```go\ngreet(\"c\")\n```\n"+
		"<!-- code: demo/main.go#run -->\n```go\nif true {\n\tgreet(\"a\")\n\n\tgreet(\"b\")\n}\n```\nend\n", after)

	again, err := doctest.Rewrite(source, after)
	require.NoError(t, err)
	assert.Equal(t, after, again, "a second cut changes nothing")
}

func TestRewriteNamesWhatItCannotCut(t *testing.T) {
	source := fstest.MapFS{
		"demo/main.go":  {Data: []byte(program)},
		"demo/empty.go": {Data: []byte("package main\n\nfunc empty() {}\n")},
	}
	for name, tc := range map[string]struct{ markdown, want string }{
		"no marker":   {"\n```go\nx\n```\n", "line 2: a Go block without a marker"},
		"no block":    {"<!-- code: demo/main.go#run -->\ntext\n", "1 markers that no Go block follows"},
		"bad marker":  {"<!-- code: demo/main.go -->\n```go\n```\n", "line 2: a Go block without a marker\n1 markers"},
		"no file":     {"<!-- code: demo/none.go#run -->\n```go\n```\n", "line 1: open demo/none.go"},
		"no function": {"<!-- code: demo/main.go#none -->\n```go\n```\n", "line 1: demo/main.go#none: neither a function"},
		"no code":     {"<!-- code: demo/empty.go#empty -->\n```go\n```\n", "line 1: demo/empty.go#empty: no code"},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := doctest.Rewrite(source, tc.markdown)
			require.ErrorContains(t, err, tc.want)
			assert.Equal(t, tc.markdown, after)
		})
	}
}
