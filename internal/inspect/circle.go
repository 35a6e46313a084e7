package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/kinds"
)

const (
	circleAge   = 3 * time.Second // a wait that is shorter is no part of a circle
	circlesMost = 10
	circleLooks = 300_000 // answers may be forged: so many steps, and no more
)

// Link is a client of a circle: it holds a lock that the one before waits for, and waits for one that the next holds.
type Link struct {
	Client string
	Hold   redlatch.HoldInfo
	Wait   redlatch.WaitInfo
}

// Circle is clients of which each waits for a lock that the next one holds, and the last for one of the first. One alone waits for
// a lock that it holds itself.
//
// It is a deadlock only if in each client one goroutine does both, hold and wait. Clients do not say which goroutine does what. A wait
// that began before the hold is not of the goroutine that acquired that, and is left out. Of a later one only a person can tell, by the
// lines of code.
type Circle []Link

// String says it in one line.
func (c Circle) String() string { return strings.Join(c.Lines(), "; ") }

// Lines says it in a line for each client, with the lines of code in brackets.
func (c Circle) Lines() (lines []string) {
	for _, l := range c {
		lines = append(lines, fmt.Sprintf("%s holds %s%s and %s", l.Client, l.Hold.Name, in(l.Hold.Site), waited(l.Wait)))
	}
	return lines
}

func waited(w redlatch.WaitInfo) string {
	return fmt.Sprintf("has waited %v for %s%s", time.Since(w.Since).Round(time.Second), w.Name, in(w.Site))
}

func in(site string) string {
	if site == "" {
		return ""
	}
	return " (" + site + ")"
}

// IsOf reports whether a client is in the circle.
func (c Circle) IsOf(client string) bool {
	return slices.ContainsFunc(c, func(l Link) bool { return l.Client == client })
}

// Has reports whether a lock of that name is in the circle.
func (c Circle) Has(name string) bool {
	for _, l := range c {
		if l.Hold.Name == name {
			return true
		}
	}
	return false
}

// holdNode is a hold of a lock for which somebody waits.
type holdNode struct {
	client string
	hold   redlatch.HoldInfo
	done   bool // it is in a circle that was found
	none   bool // it is in no circle

	// How a search has come to it last: from another hold, by a wait of its client.
	first, from *holdNode
	by          redlatch.WaitInfo

	// Of a search for chains.
	depth  int       // of how many holds a longest chain from here is
	next   *holdNode // the next one of them, for which its client waits by the wait to
	to     redlatch.WaitInfo
	behind bool // it is the next of another one
	circle bool // it leads into a circle
}

// circles searches for circles.
type circles struct {
	waits   map[string][]redlatch.WaitInfo // by client; the latest one for each lock that is old enough, the latest first
	holders map[string][]*holdNode         // by lock
	holds   []*holdNode                    // what was held longest first
	looks   int
	found   []Circle // of several clients
	alone   []Circle
}

// Circles returns circles in which clients wait for each other: for each hold that is in any a shortest one, the first so many.
// Then come clients that may wait for themselves.
func (s *Census) Circles() []Circle {
	f := s.waited()
	for _, n := range f.holds {
		if !n.done && len(f.found) < circlesMost {
			n.none = !f.search(n) && f.looks < circleLooks
		}
	}
	most := append(f.found, f.alone...)
	return most[:min(circlesMost, len(most))]
}

// waited returns the locks for which somebody waits.
func (s *Census) waited() *circles {
	f := circles{waits: map[string][]redlatch.WaitInfo{}, holders: map[string][]*holdNode{}}
	waited, known := map[string]bool{}, map[[2]string]bool{}
	for _, w := range slices.Backward(s.Waits) { // the latest one first
		if IsLock(w.Kind) && time.Since(w.Since) >= circleAge && !known[[2]string{w.Client, w.Name}] {
			f.waits[w.Client] = append(f.waits[w.Client], w.WaitInfo)
			waited[w.Name], known[[2]string{w.Client, w.Name}] = true, true
		}
	}
	for _, h := range s.Holds {
		if IsLock(h.Kind) && waited[h.Name] {
			n := &holdNode{client: h.Client, hold: h.HoldInfo}
			f.holders[h.Name] = append(f.holders[h.Name], n)
			f.holds = append(f.holds, n)
		}
	}
	return &f
}

// IsLock reports whether objects of a kind are held as locks are. A leadership is.
func IsLock(kind string) bool { return strings.HasSuffix(kind, kinds.Lock) || kind == kinds.Election }

// search looks for a shortest circle through a hold, breadth first, and reports whether there is one of several clients. It follows
// the waits of a client that began after the hold.
func (f *circles) search(first *holdNode) bool {
	first.first = first
	asked := map[string]bool{} // the locks whose holders are in the queue
	for queue := []*holdNode{first}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		for _, w := range f.waits[n.client] {
			if w.Since.Before(n.hold.Since) || f.looks > circleLooks {
				break
			}
			f.looks++
			switch {
			case w.Name != first.hold.Name:
			case n != first:
				f.found = append(f.found, circle(n, w))
				return true
			case !f.isAlone(n):
				f.alone = append(f.alone, circle(n, w))
			}
			if asked[w.Name] {
				continue
			}
			asked[w.Name] = true
			for _, next := range f.holders[w.Name] {
				f.looks++
				if next.first != first && !next.none {
					next.first, next.from, next.by = first, n, w
					queue = append(queue, next)
				}
			}
		}
	}
	return false
}

// isAlone reports whether the client is known to wait for itself, by another hold of the lock: a client may have many of readers.
func (f *circles) isAlone(n *holdNode) bool {
	return slices.ContainsFunc(f.alone, func(c Circle) bool { return c[0].Client == n.client && c[0].Hold.Name == n.hold.Name })
}

// circle returns the circle whose last hold is n, of which the client waits for the lock of the first.
func circle(n *holdNode, w redlatch.WaitInfo) (c Circle) {
	for {
		n.done = true
		c = append(c, Link{n.client, n.hold, w})
		if n == n.first {
			break
		}
		n, w = n.from, n.by
	}
	slices.Reverse(c)
	return c
}
