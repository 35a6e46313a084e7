package inspect

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

const (
	circleAge   = 3 * time.Second // a wait that is shorter is no part of a circle
	circlesMost = 10
	circleLooks = 100_000 // answers may be forged: so many steps, and no more
)

// Link is a client of a circle: it holds a lock that the one before waits for, and waits for one that the next holds.
type Link struct {
	Client string
	Hold   redlatch.HoldInfo
	Wait   redlatch.WaitInfo
}

// Circle is clients of which each waits for a lock that the next one holds, and the last for one of the first. One alone waits for
// a lock that it holds itself. Answers do not say which goroutine holds and which one waits: if none of them does both, it is no circle.
type Circle []Link

// String says it in one line.
func (c Circle) String() string { return strings.Join(c.Lines(), "; ") }

// Lines says it in a line for each client.
func (c Circle) Lines() (lines []string) {
	if len(c) == 1 {
		return []string{fmt.Sprintf("%s holds %s and waits for it too, perhaps for itself%s", c[0].Client, c[0].Hold.Name, at(c[0].Wait.Site))}
	}
	for _, l := range c {
		lines = append(lines, fmt.Sprintf("%s holds %s and waits for %s%s", l.Client, l.Hold.Name, l.Wait.Name, at(l.Wait.Site)))
	}
	return lines
}

func at(site string) string {
	if site == "" {
		return ""
	}
	return " at " + site
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
	Link         // the wait is that by which the search has left the node
	open, passed bool
}

// circles searches for circles.
type circles struct {
	waits   map[string]map[string]redlatch.WaitInfo // by client and lock, the latest one that is old enough
	holders map[string][]*holdNode                  // by lock
	path    []*holdNode
	looks   int
	found   []Circle
}

// Circles returns circles in which clients wait for each other.
func (s *Census) Circles() []Circle {
	f := circles{waits: map[string]map[string]redlatch.WaitInfo{}, holders: map[string][]*holdNode{}}
	waited := map[string]bool{}
	for _, w := range s.Waits { // the latest one last
		if isLock(w.Kind) && time.Since(w.Since) >= circleAge {
			if f.waits[w.Client] == nil {
				f.waits[w.Client] = map[string]redlatch.WaitInfo{}
			}
			f.waits[w.Client][w.Name] = w.WaitInfo
			waited[w.Name] = true
		}
	}
	var all []*holdNode
	for _, h := range s.Holds {
		if isLock(h.Kind) && waited[h.Name] {
			n := &holdNode{Link: Link{Client: h.Client, Hold: h.HoldInfo}}
			f.holders[h.Name] = append(f.holders[h.Name], n)
			all = append(all, n)
		}
	}
	for _, n := range all {
		f.visit(n)
	}
	return f.found
}

func isLock(kind string) bool { return strings.HasSuffix(kind, "lock") }

// visit follows the waits of a client that began after the hold: only those may be of the goroutine that holds.
func (f *circles) visit(n *holdNode) {
	if n.passed || len(f.found) == circlesMost {
		return
	}
	n.open, n.passed = true, true
	f.path = append(f.path, n)
	for name, w := range f.waits[n.Client] {
		if w.Since.Before(n.Hold.Since) {
			continue
		}
		n.Wait = w
		for _, next := range f.holders[name] {
			if f.looks++; f.looks > circleLooks {
				break
			}
			if next.open {
				f.close(next)
			} else {
				f.visit(next)
			}
		}
	}
	n.open = false
	f.path = f.path[:len(f.path)-1]
}

// close notes the circle that the path has come to.
func (f *circles) close(first *holdNode) {
	var c Circle
	for _, n := range f.path {
		if n == first || c != nil {
			c = append(c, n.Link)
		}
	}
	if len(f.found) < circlesMost {
		f.found = append(f.found, c)
	}
}
