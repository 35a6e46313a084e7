package core

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// F9
func TestFailoverIsTold(t *testing.T) {
	const none = "0000"
	on := func(node, run, id, before string) told { return told{node, answer{run, "master", id, before}} }
	for _, tc := range []struct {
		name    string
		answers []told
		changed bool // at the last answer
	}{
		{"the first server", []told{on("a", "A", "1", none)}, false},
		{"the same one", []told{on("a", "A", "1", none), on("a", "A", "1", none)}, false},
		{"it has its first replica", []told{on("a", "A", "1", none), on("a", "A", "2", none)}, false},
		{"a second master", []told{on("a", "A", "1", none), on("b", "B", "2", none)}, false},
		{"a second master that was promoted long ago", []told{on("a", "A", "1", none), on("b", "B", "3", "2")}, false},
		{"a server restarted", []told{on("a", "A", "1", none), on("a", "AA", "2", none)}, true},
		{"a replica was promoted", []told{on("a", "A", "1", none), on("b", "B", "2", "1")}, true},
		{"another server behind Sentinel", []told{on("s", "A", "1", none), on("s", "B", "2", "1")}, true},
		{"it is told once", []told{on("a", "A", "1", none), on("b", "B", "2", "1"), on("b", "B", "2", "1")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, nodes := failovers{ids: map[string]bool{}}, map[string]*questions{"a": {}, "b": {}, "s": {}}
			changed := false
			for _, one := range tc.answers {
				changed = f.changed(nodes[one.node], one.answer)
			}
			assert.Equal(t, tc.changed, changed)
		})
	}
}

// told is what the server at an address has answered.
type told struct {
	node string
	answer
}
