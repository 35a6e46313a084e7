package console

import (
	"fmt"
	"math"
	"strings"

	"github.com/redlatch/redlatch/internal/inspect"
)

const (
	circleWide = 600 // of a drawing
	narrowWide = 400 // of up to three clients, for a telephone
	boxWide    = 172 // of a client in it
	boxHigh    = 26
	labelMost  = 22 // letters
	drawMost   = 5  // clients of a circle: of more there are words alone
	lineMost   = 6  // boxes of a chain: of a longer one the last are drawn, who hold up the others
	lineStep   = 64
)

// drawing is a circle or a chain of waits: its clients, and an arrow from each to the one that holds what it waits for.
type drawing struct {
	Width, Height int
	Text          string
	Boxes         []box
	Arrows        []arrow
}

// box is a client.
type box struct {
	X, Y          int // of its middle
	Label, Client string
}

// arrow is a lock that a client waits for.
type arrow struct {
	Path, Head  string
	X, Y        int // of its label
	Anchor      string
	Label, Name string
}

// drawn draws a circle of waits, if it is not too large for that.
func drawn(c inspect.Circle) (d drawing) {
	n := len(c)
	if n == 0 || n > drawMost {
		return d
	}
	wide, first := circleWide, math.Pi // it is on the left
	if n <= 3 {
		wide = narrowWide
	}
	if n == 2 { // beside each other there is no room for two
		first = 1.5 * math.Pi
	}
	rx, ry := float64(wide-boxWide)/2-10, 50+20*float64(n)
	middle, height := float64(wide)/2, 2*ry+80
	at := func(place, far float64) (x, y float64) {
		angle := first + 2*math.Pi*place/float64(n)
		return middle + far*rx*math.Cos(angle), height/2 + far*ry*math.Sin(angle)
	}
	d = drawing{Width: wide, Height: int(height), Text: strings.Join(c.Lines(), "; ")}
	for i, l := range c {
		x, y := at(float64(i), 1)
		tox, toy := at(float64(i+1), 1)
		// By its two tangents the arrow is about the arc between them; of two clients these would never meet.
		cx, cy := at(float64(i)+0.5, min(2, 1/math.Max(0.5, math.Cos(math.Pi/float64(n)))))
		if n == 1 { // it waits for itself: above its box
			x, y, tox, toy, cx, cy = middle-60, height/2, middle+60, height/2, middle, height/2-2*ry
		}
		midx, midy := (x+2*cx+tox)/4, (y+2*cy+toy)/4
		a := arrow{
			Path: fmt.Sprintf("M%.0f %.0fQ%.0f %.0f %.0f %.0f", x, y, cx, cy, tox, toy), Head: head(midx, midy, math.Atan2(toy-y, tox-x)),
			Name: l.Wait.Name, Label: short(l.Wait.Name), Anchor: "middle", X: int(midx), Y: int(midy) - 10,
		}
		if midy > height/2 {
			a.Y = int(midy) + 22
		}
		b := box{X: int(x), Y: int(y), Client: l.Client, Label: short(l.Client)}
		if n == 1 {
			b.X = int(middle)
		}
		d.Arrows, d.Boxes = append(d.Arrows, a), append(d.Boxes, b)
	}
	return d
}

// chained draws a chain of waits, from top to bottom.
func chained(c inspect.Chain) drawing {
	boxes, locks := []box{{Client: c.First.Client, Label: short(c.First.Client)}}, []string{c.First.Name}
	for _, l := range c.Links {
		boxes = append(boxes, box{Client: l.Client, Label: short(l.Client)})
		locks = append(locks, l.Wait.Name)
	}
	if more := len(boxes) - lineMost; more > 0 {
		text := fmt.Sprintf("%d clients wait", more+1)
		boxes, locks = append([]box{{Client: text, Label: text}}, boxes[more+1:]...), locks[more:]
	}
	d := drawing{Width: narrowWide, Height: lineStep*(len(boxes)-1) + boxHigh + 4, Text: strings.Join(c.Lines(), "; ")}
	for i := range boxes {
		y := lineStep*i + boxHigh/2 + 2
		boxes[i].X, boxes[i].Y = boxWide/2+8, y
		if i == len(boxes)-1 {
			break
		}
		end := y + lineStep - boxHigh/2
		d.Arrows = append(d.Arrows, arrow{
			Path: fmt.Sprintf("M%d %dV%d", boxes[i].X, y+boxHigh/2, end-8), Head: head(float64(boxes[i].X), float64(end), math.Pi/2),
			Name: locks[i], Label: short(locks[i]), Anchor: "start", X: boxes[i].X + 14, Y: y + lineStep/2 + 4,
		})
	}
	d.Boxes = boxes
	return d
}

// head is the head of an arrow at a point, in a direction.
func head(x, y, angle float64) string {
	side := func(turn float64) (float64, float64) {
		return x - 10*math.Cos(angle+turn), y - 10*math.Sin(angle+turn)
	}
	lx, ly := side(0.5)
	rx, ry := side(-0.5)
	return fmt.Sprintf("M%.0f %.0fL%.0f %.0fL%.0f %.0fz", x, y, lx, ly, rx, ry)
}

// short is a name as a drawing has room for it.
func short(name string) string {
	letters := []rune(name)
	if len(letters) <= labelMost {
		return name
	}
	return string(letters[:labelMost-1]) + "…"
}
