package inspect_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/inspect"
)

func TestChainsAreClientsThatWaitInALine(t *testing.T) {
	const lock = "lock"
	for name, tc := range map[string]struct {
		scene *scene
		want  []string
	}{
		"nobody waits":      {new(scene).holds("a", lock, "x", 20), nil},
		"one waits for one": {new(scene).holds("a", lock, "x", 20).waits("b", lock, "x", 10), nil},
		"three": {
			new(scene).holds("c", lock, "y", 30).holds("b", "fair_lock", "x", 20).waits("a", "fair_lock", "x", 12).waits("b", lock, "y", 10).waits("d", "fair_lock", "x", 9),
			[]string{"a has waited for x (a.go:7), and 1 other call waits for it; b holds x and has waited for y (b.go:7); c holds y"},
		},
		"the longest one of two": {
			new(scene).holds("d", lock, "z", 40).holds("c", lock, "y", 30).holds("e", lock, "u", 30).holds("b", lock, "x", 20).
				waits("a", lock, "x", 12).waits("b", lock, "u", 11).waits("b", lock, "y", 10).waits("c", lock, "z", 9),
			[]string{"a has waited for x (a.go:7); b holds x and has waited for y (b.go:7); c holds y and has waited for z (c.go:7); d holds z"},
		},
		"two, the longer one first": {
			new(scene).holds("c", lock, "y", 30).holds("b", lock, "x", 20).holds("f", lock, "v", 50).holds("e", lock, "u", 40).holds("g", lock, "w", 60).
				waits("h", lock, "u", 11).waits("b", lock, "y", 10).waits("e", lock, "v", 10).waits("f", lock, "w", 9).waits("a", lock, "x", 8),
			[]string{
				"h has waited for u (h.go:7); e holds u and has waited for v (e.go:7); f holds v and has waited for w (f.go:7); g holds w",
				"a has waited for x (a.go:7); b holds x and has waited for y (b.go:7); c holds y",
			},
		},
		"one waited before it held": {
			new(scene).holds("c", lock, "y", 30).holds("b", lock, "x", 9).waits("b", lock, "y", 10).waits("a", lock, "x", 8), nil,
		},
		"one has waited for a moment": {
			new(scene).holds("c", lock, "y", 30).holds("b", lock, "x", 9).waits("b", lock, "y", 1).waits("a", lock, "x", 8), nil,
		},
		"what is behind a circle": {
			new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 20).waits("a", lock, "y", 10).waits("b", lock, "x", 10).waits("d", lock, "x", 5), nil,
		},
		"what leads into a circle": {
			new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 20).holds("d", lock, "u", 20).
				waits("a", lock, "y", 10).waits("b", lock, "x", 10).waits("e", lock, "u", 7).waits("d", lock, "x", 6), nil,
		},
		"semaphores are none": {
			new(scene).holds("c", "permits", "y", 30).holds("b", lock, "x", 20).waits("b", "permits", "y", 10).waits("a", lock, "x", 8), nil,
		},
	} {
		slices.SortFunc(tc.scene.Waits, func(a, b inspect.Wait) int { return a.Since.Compare(b.Since) })
		var said []string
		for _, c := range tc.scene.Chains() {
			said = append(said, regexp.MustCompile(` waited \d+s`).ReplaceAllString(c.String(), " waited"))
		}
		assert.Equal(t, tc.want, said, name)
	}
}

// Who is asked may say anything.
func TestChainsAreFoundSoonInACrowd(t *testing.T) {
	s := new(scene)
	for i := range 1_000 {
		s.holds("c"+fmt.Sprint(i%50), "lock", fmt.Sprint("l", i), 20)
		s.waits("c"+fmt.Sprint((i+1)%50), "lock", fmt.Sprint("l", (i*7)%1_000), 10)
	}
	began := time.Now()
	assert.LessOrEqual(t, len(s.Chains()), 10)
	assert.Less(t, time.Since(began), 2*time.Second)
}
