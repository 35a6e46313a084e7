package core

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// F9
func TestFailoverIsTold(t *testing.T) {
	const none = "0000"
	type answer struct{ node, id, before string }
	for _, tc := range []struct {
		name    string
		answers []answer
		changed bool // at the last answer
	}{
		{"the first server", []answer{{"a", "1", none}}, false},
		{"the same one", []answer{{"a", "1", none}, {"a", "1", none}}, false},
		{"a second master", []answer{{"a", "1", none}, {"b", "2", none}}, false},
		{"a second master that was promoted long ago", []answer{{"a", "1", none}, {"b", "3", "2"}}, false},
		{"a server restarted", []answer{{"a", "1", none}, {"a", "2", none}}, true},
		{"a replica was promoted", []answer{{"a", "1", none}, {"b", "2", "1"}}, true},
		{"it is told once", []answer{{"a", "1", none}, {"b", "2", "1"}, {"b", "2", "1"}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, nodes := failovers{ids: map[string]bool{}}, map[string]*questions{"a": {}, "b": {}}
			changed := false
			for _, a := range tc.answers {
				changed = f.changed(nodes[a.node], a.id, a.before)
			}
			assert.Equal(t, tc.changed, changed)
		})
	}
}
