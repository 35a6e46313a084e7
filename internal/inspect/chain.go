package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Chain is clients of which each waits for a lock that the next one holds. Only a person can tell whether one goroutine of a client does
// both, as with a [Circle].
type Chain struct {
	First Wait   // the longest one for the first lock
	More  int    // calls that wait for the first lock too
	Links []Link // who holds it and waits for the next, and so on; the last one waits for no lock of another client, and its Wait is empty
}

// String says it in one line.
func (c Chain) String() string { return strings.Join(c.Lines(), "; ") }

// Lines says it in a line for each client, with the lines of code in brackets.
func (c Chain) Lines() []string {
	lines := []string{c.First.Client + " " + waited(c.First.WaitInfo)}
	if c.More > 0 {
		lines[0] += ", and " + N(c.More, "other call waits", "other calls wait") + " for it"
	}
	for _, l := range c.Links {
		line := fmt.Sprintf("%s holds %s%s", l.Client, l.Hold.Name, in(l.Hold.Site))
		if l.Wait.Name != "" {
			line += " and " + waited(l.Wait)
		}
		lines = append(lines, line)
	}
	return lines
}

// Last returns who holds up all the others.
func (c Chain) Last() Link { return c.Links[len(c.Links)-1] }

// Has reports whether a lock of that name is in the chain.
func (c Chain) Has(name string) bool {
	return slices.ContainsFunc(c.Links, func(l Link) bool { return l.Hold.Name == name })
}

// Chains returns chains of at least three clients, the longest first and at most ten. Each begins at a lock for which no client waits that
// holds another; of several that begin with one hold it is a longest one. One that leads into a circle is none: see [Census.Circles].
func (s *Census) Chains() (all []Chain) {
	f := s.waited()
	for _, n := range f.holds {
		f.measure(n)
	}
	starts := slices.DeleteFunc(f.holds, func(n *holdNode) bool { return n.behind || n.circle || n.depth < 2 })
	slices.SortStableFunc(starts, func(a, b *holdNode) int { return cmp.Compare(b.depth, a.depth) })
	for _, n := range starts {
		if c, ok := s.chain(n); ok {
			all = append(all, c)
		}
		if len(all) == circlesMost {
			break
		}
	}
	return all
}

// measure finds a longest chain from a hold, and returns of how many holds it is.
func (f *circles) measure(n *holdNode) int {
	switch {
	case n.depth < 0: // a circle
		return 0
	case n.depth > 0:
		return n.depth
	}
	n.depth = -1
	longest := 0
	for _, w := range f.waits[n.client] {
		if w.Since.Before(n.hold.Since) || f.looks > circleLooks {
			break
		}
		f.looks++
		for _, next := range f.holders[w.Name] {
			if f.looks++; f.looks > circleLooks {
				break
			}
			if next.client == n.client {
				continue
			}
			next.behind = true
			d := f.measure(next)
			n.circle = n.circle || d == 0 || next.circle
			if d > longest {
				longest, n.next, n.to = d, next, w
			}
		}
	}
	n.depth = 1 + longest
	return n.depth
}

// chain returns the chain from a hold. There is none if only its own client waits for it.
func (s *Census) chain(n *holdNode) (c Chain, ok bool) {
	for _, w := range s.Waits { // the longest one first
		switch {
		case w.Name != n.hold.Name || w.Client == n.client || !IsLock(w.Kind) || time.Since(w.Since) < circleAge:
		case !ok:
			c.First, ok = w, true
		default:
			c.More++
		}
	}
	for ; n != nil; n = n.next {
		c.Links = append(c.Links, Link{n.client, n.hold, n.to})
	}
	return c, ok
}
