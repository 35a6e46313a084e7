package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

func TestCircleIsDrawnWithinItsFrame(t *testing.T) {
	for n := 1; n <= drawMost; n++ {
		var c inspect.Circle
		for i := range n {
			c = append(c, inspect.Link{
				Client: "web-" + string(rune('a'+i)), Hold: redlatch.HoldInfo{Name: "order:" + string(rune('a'+i))},
				Wait: redlatch.WaitInfo{Name: "order:" + string(rune('a'+(i+1)%n)) + strings.Repeat("é", 30)},
			})
		}
		d := drawn(c)
		assert.Len(t, d.Boxes, n)
		assert.Len(t, d.Arrows, n)
		for i, b := range d.Boxes {
			assert.True(t, b.X >= boxWide/2 && b.X <= d.Width-boxWide/2 && b.Y >= boxHigh/2 && b.Y <= d.Height-boxHigh/2, "%d of %d: %+v", i, n, b)
			for _, other := range d.Boxes[:i] {
				dx, dy := b.X-other.X, b.Y-other.Y
				assert.True(t, max(dx, -dx) >= boxWide || max(dy, -dy) >= boxHigh, "%d of %d is upon another one", i, n)
			}
		}
		for _, a := range d.Arrows {
			assert.True(t, a.X > 0 && a.X < d.Width && a.Y > 10 && a.Y < d.Height, "%d: %+v in %d", n, a, d.Height)
			assert.Len(t, []rune(a.Label), labelMost)
		}
	}
}
