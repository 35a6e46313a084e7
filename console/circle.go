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
	drawMost   = 5  // clients: of more there are words alone
)

// drawing is a circle of waits: its clients, and an arrow from each to the one that holds what it waits for.
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
			Name: l.Wait.Name, Label: short(l.Wait.Name), X: int(midx), Y: int(midy) - 10,
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
