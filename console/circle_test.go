package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/locktest"
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

func TestChainIsDrawnWithinItsFrame(t *testing.T) {
	for n := 2; n <= 12; n++ {
		c := inspect.Chain{First: inspect.Wait{Client: "web-a", WaitInfo: redlatch.WaitInfo{Name: "order:1"}}}
		for i := range n {
			l := inspect.Link{Client: "web-" + string(rune('b'+i)), Hold: redlatch.HoldInfo{Name: "order:" + string(rune('1'+i))}}
			if i < n-1 {
				l.Wait.Name = "order:" + string(rune('2'+i)) + strings.Repeat("é", 30)
			}
			c.Links = append(c.Links, l)
		}
		d := chained(c)
		assert.Len(t, d.Boxes, min(n+1, lineMost))
		assert.Len(t, d.Arrows, len(d.Boxes)-1)
		assert.Equal(t, "web-"+string(rune('b'+n-1)), d.Boxes[len(d.Boxes)-1].Client, "who holds up all others is there")
		for i, b := range d.Boxes {
			assert.True(t, b.X >= boxWide/2 && b.X <= d.Width-boxWide/2 && b.Y >= boxHigh/2 && b.Y <= d.Height-boxHigh/2, "%d of %d: %+v", i, n, b)
		}
		for i, a := range d.Arrows {
			assert.True(t, a.Y > d.Boxes[i].Y+boxHigh/2 && a.Y < d.Boxes[i+1].Y-boxHigh/2, "%d: %+v", n, a)
			assert.LessOrEqual(t, len([]rune(a.Label)), labelMost)
		}
	}
}

func TestPagesDrawWhoWaitsForWhom(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := Handler(unhurried(t, b))
		c := &h.(*handler).crowd
		at := func(ago time.Duration) time.Time { return time.Now().Add(-ago * time.Second) }
		hold := func(client, name string) inspect.Hold {
			return inspect.Hold{Client: client, HoldInfo: redlatch.HoldInfo{Kind: "lock", Name: name, Since: at(60)}}
		}
		wait := func(client, name string, ago time.Duration) inspect.Wait {
			return inspect.Wait{Client: client, WaitInfo: redlatch.WaitInfo{Kind: "lock", Name: name, Since: at(ago)}}
		}
		c.last.Holds = []inspect.Hold{hold("stock.2", "order:7"), hold("batch.3", "stock:1"), hold("batch.3", "alone")}
		c.last.Waits = []inspect.Wait{wait("web.1", "order:7", 20), wait("stock.2", "stock:1", 10), wait("web.1", "order:7", 9), wait("web.1", "alone", 8)}
		c.at = time.Now()
		for page, drawn := range map[string]bool{"": true, "lock?name=order:7": true, "lock?name=stock:1": true, "lock?name=alone": false} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+page, nil))
			text := w.Body.String()
			assert.Equal(t, drawn, strings.Contains(text, `holds up 2 clients by lock <a href="lock?name=stock%3A1">stock:1</a>, and 1 other call waits for order:7`), "%q: %s", page, text)
			assert.Equal(t, drawn, strings.Contains(text, `aria-label="web.1 has waited 20s for order:7, and 1 other call waits for it; stock.2 holds order:7 and has waited 10s for stock:1; batch.3 holds stock:1"`), page)
		}
	})
}
