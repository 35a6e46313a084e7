package rmultilock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
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
// clock, so that a process that was stopped notices leases that ended meanwhile.
func (c *holdContext) Err() error {
	if err := c.inner.Err(); err != nil {
		return err
	}
	h := (*hold)(c)
	if !h.late() {
		return nil
	}
	h.noticeLoss()
	if err := c.inner.Err(); err != nil || !h.late() {
		return err
	}
	return context.Canceled // a part's end is about to be reported
}

// noticeLoss has the parts look at the clock. It does not wait for another goroutine that found one lost and is about to report it.
func (h *hold) noticeLoss() {
	for i, p := range h.snapshot() {
		if p.held != nil && p.held.Context().Err() != nil { // it looks at the clock; the end of the given context is none of the part
			p.held.OnEnd(func(cause error) { h.partEnded(i, p.held, cause) })
		}
	}
	h.mu.Lock()
	cause := h.cause
	h.mu.Unlock()
	if cause != nil {
		h.cancel(cause)
	}
}

// late reports whether too few parts are still promised.
func (h *hold) late() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.isOver() || h.state == holding && !time.Now().Before(h.deadlineLocked())
}

// Value answers lookups of a lineage, for the parts and for the whole; other values are those of the given context.
func (c *holdContext) Value(key any) any {
	h := (*hold)(c)
	if _, group := key.(lease.Lineage); !group && !lease.Searches(key) {
		return h.inner.Value(key)
	}
	if found := h.Find(key); found != nil {
		return found
	}
	return h.given.Value(key)
}

// Find returns the level at which a lookup of a lineage ends: this hold or one of its parts; nil if it goes on.
func (h *hold) Find(key any) any {
	if k, ok := key.(lease.Lineage); ok {
		if l, ok := k.Of.(*Lock); ok && h.holds() && l.same(h.lock) {
			return h
		}
	}
	for _, p := range h.snapshot() {
		if p.held == nil {
			continue
		}
		if found := p.held.Find(key); found != nil {
			return found
		}
	}
	return nil
}

// holds reports whether a call under the hold's context nests in it.
func (h *hold) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == holding
}

// Given returns the context that the acquiring call was given.
func (h *hold) Given() context.Context { return h.given }

// Covers reports whether other is this hold or one of its parts.
func (h *hold) Covers(other any) bool {
	if other == any(h) {
		return true
	}
	for _, p := range h.snapshot() {
		if p.held != nil && p.held.Covers(other) {
			return true
		}
	}
	return false
}

// nestsIn reports whether other covers an outer level of h.
func (h *hold) nestsIn(other lease.Level) bool {
	for o := h.outer; o != nil; o = o.outer {
		if other.Covers(o) {
			return true
		}
	}
	return false
}

// OnEnd calls fn once, with the cause, when this side ends the hold's context: at once if that has happened.
func (h *hold) OnEnd(fn func(cause error)) {
	h.mu.Lock()
	cause := h.cause
	if cause == nil {
		h.listeners = append(h.listeners, fn)
	}
	h.mu.Unlock()
	if cause != nil {
		fn(cause)
	}
}

// endContext ends the context. The first cause stands.
func (h *hold) endContext(cause error) {
	h.mu.Lock()
	if h.cause == nil {
		h.cause = cause
	}
	cause = h.cause
	listeners := h.listeners
	h.listeners = nil
	h.mu.Unlock()
	h.cancel(cause)
	for _, fn := range listeners {
		fn(cause)
	}
}
