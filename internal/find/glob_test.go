package find

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Locks are found by a SCAN with the pattern, queues and the rest by matchGlob: both find the same names.
func TestPatternMatchesWhatRedisDoes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	names := []string{"größe", "ayb", `a\b`, "a\xffb"}
	for some := []string{""}; len(some[0]) < 3; {
		var longer []string
		for _, name := range some {
			for _, c := range []byte("ab-]") {
				longer = append(longer, name+string(c))
			}
		}
		names, some = append(names, longer...), longer
	}
	var set []any
	for _, name := range names {
		set = append(set, name, "")
	}
	require.NoError(t, rdb.MSet(t.Context(), set...).Err())
	globs := []string{"gr??ße", "gr?ße", `a[\]]b`, `a[x\-z]b`, "a[z-x]b", `a\\b`, `a\`, "a[^b]b", "*[^]", "[a-b", "[]a", "**a**"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var glob strings.Builder
		for range 1 + r.IntN(7) {
			glob.WriteByte(`ab-][]^*?\`[r.IntN(10)])
		}
		globs = append(globs, glob.String())
	}
	for _, glob := range globs {
		want, err := rdb.Keys(t.Context(), glob).Result()
		require.NoError(t, err)
		var got []string
		for _, name := range names {
			if matchGlob(glob, name) {
				got = append(got, name)
			}
		}
		assert.ElementsMatch(t, want, got, "%q", glob)
	}
}

// Each star could begin anywhere in a name.
func TestPatternOfManyStarsIsMatchedSoon(t *testing.T) {
	assert.False(t, matchGlob(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 500)))
}
