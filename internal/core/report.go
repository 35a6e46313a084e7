package core

import (
	"cmp"
	"slices"
	"time"
)

// HoldInfo is something that the client holds.
type HoldInfo struct {
	Kind, Name, Owner string
	Mode              string
	Since             time.Time
	Left              time.Duration
	Levels            int
	Renewed           int
	Site              string
}

// WaitInfo is a call that waits for somebody else.
type WaitInfo struct {
	Kind, Name string
	Since      time.Time
	Site       string
}

// Reporter is a kind of object that tells what the client holds and waits for.
type Reporter interface {
	Holds() []HoldInfo
	Waits() []WaitInfo
}

// Reports adds a kind of object to those that are asked by Holds and Waits.
func (c *Core) Reports(r Reporter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reporters = append(c.reporters, r)
}

func (c *Core) reporting() []Reporter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reporters)
}

// Holds returns what the client holds, what it has held longest first.
func (c *Core) Holds() []HoldInfo {
	var all []HoldInfo
	for _, r := range c.reporting() {
		all = append(all, r.Holds()...)
	}
	slices.SortFunc(all, func(a, b HoldInfo) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner, b.Owner)) })
	return all
}

// Waits returns the calls that wait, the one that has waited longest first.
func (c *Core) Waits() []WaitInfo {
	var all []WaitInfo
	for _, r := range c.reporting() {
		all = append(all, r.Waits()...)
	}
	slices.SortStableFunc(all, func(a, b WaitInfo) int { return a.Since.Compare(b.Since) })
	return all
}
