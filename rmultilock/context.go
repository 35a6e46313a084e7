package rmultilock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/rlock"
)

// holdContext is a hold seen as a context.
type holdContext hold

// Context returns the context of the hold.
func (h *hold) Context() context.Context { return (*holdContext)(h) }

// Deadline returns the deadline of the context that the hold was given.
func (c *holdContext) Deadline() (time.Time, bool) { return c.inner.Deadline() }

// Done returns a channel that is closed when the context ends.
func (c *holdContext) Done() <-chan struct{} { return c.inner.Done() }

// Err returns context.Canceled or context.DeadlineExceeded once the context has ended. It has the parts look at the
// clock, so that a process that was stopped learns of leases that ended meanwhile.
func (c *holdContext) Err() error {
	if err := c.inner.Err(); err != nil {
		return err
	}
	h := (*hold)(c)
	if !h.late() {
		return nil
	}
	for _, p := range h.snapshot() {
		if p.held != nil {
			_ = p.held.Context().Err() // a part that is lost says so by itself
		}
	}
	if err := c.inner.Err(); err != nil || !h.late() {
		return err
	}
	return context.Canceled // a part was found lost elsewhere, and the news of it is on its way
}

// late reports whether fewer parts than are needed are still promised.
func (h *hold) late() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == over || h.state == holding && !time.Now().Before(h.deadlineLocked())
}

// Value answers the search for a lineage, of the parts and of the whole, and otherwise has the values of the context
// that the hold was given.
func (c *holdContext) Value(key any) any {
	h := (*hold)(c)
	k, group := key.(lease.Lineage)
	if !group && !lease.Searches(key) {
		return h.inner.Value(key)
	}
	if l, ok := k.Of.(*Lock); ok && h.holds() && l.same(h.lock) {
		return h
	}
	if found := h.partOf(key); found != nil {
		return found
	}
	return h.given.Value(key)
}

// holds reports whether a call under the hold's context nests in it.
func (h *hold) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == holding
}

// partOf returns the part at which a search for a lineage ends.
func (h *hold) partOf(key any) any {
	for _, p := range h.snapshot() {
		switch {
		case p.lease != nil && p.lease.Answers(key):
			return p.lease
		case p.lease == nil && p.held != nil:
			if found := p.held.Context().Value(key); found != nil {
				return found
			}
		}
	}
	return nil
}

func (h *hold) snapshot() []part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]part(nil), h.parts...)
}

// Given returns the context that the acquiring call was given.
func (h *hold) Given() context.Context { return h.given }

// Covers reports whether other is this hold, or a part of it.
func (h *hold) Covers(other any) bool {
	if other == any(h) {
		return true
	}
	for _, p := range h.snapshot() {
		if p.lease != nil && other == any(p.lease) {
			return true
		}
		if public, ok := p.held.(*rlock.Hold); ok {
			if inner, ok := rlock.Unwrap(public).(lease.Level); ok && inner.Covers(other) {
				return true
			}
		}
	}
	return false
}

// within reports whether other is, or has among its parts, an outer level of h.
func (h *hold) within(other lease.Level) bool {
	for o := h.outer; o != nil; o = o.outer {
		if other.Covers(o) {
			return true
		}
	}
	return false
}
