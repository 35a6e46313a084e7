package near

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTypesWithoutPointersAreKeptDecoded(t *testing.T) {
	type inner struct {
		At   time.Time
		Sums [3]float64
	}
	for _, plain := range []any{true, 1, "text", 1.5, time.Second, time.Now(), inner{}, struct{}{}, [2]inner{}} {
		assert.True(t, isPlain(reflect.TypeOf(plain)), "%T", plain)
	}
	for _, other := range []any{[]byte{}, &inner{}, map[string]int{}, struct{ of []int }{}, [1]any{}, make(chan int), func() {}} {
		assert.False(t, isPlain(reflect.TypeOf(other)), "%T", other)
	}
}

func TestStripesForEntries(t *testing.T) {
	for entries, want := range map[int]int{1: 1024, 255: 1024, 256: 2048, 10_000: 65_536, 1 << 40: maxStripes} {
		assert.Equal(t, want, stripesFor(entries), entries)
	}
}
