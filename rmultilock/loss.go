package rmultilock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
)

// partEnded notes that a part was lost, or that its client closes.
func (h *hold) partEnded(i int, of held, cause error) {
	switch {
	case errors.Is(cause, errs.ErrClosed):
		h.partCloses(i, of, cause)
	case errors.Is(cause, errs.ErrLost):
		h.partLost(i, of, cause)
	} // else it was released by this side
}

// partCloses notes that a part's client closes: the part stays held until Unlock.
func (h *hold) partCloses(i int, of held, cause error) {
	h.mu.Lock()
	if !h.isLiveLocked(i, of) {
		h.mu.Unlock()
		return
	}
	h.live--
	h.parts[i].state = closing
	enough := h.state == acquiring || h.live >= h.lock.quorum
	h.mu.Unlock()
	if !enough {
		h.endContext(lease.Ended(title, h.lock.name, errs.ErrClosed, cause.Error()))
	}
}

// partLost notes that a part was lost, and releases the others if too few of them were certain since then.
func (h *hold) partLost(i int, of held, cause error) {
	since := of.LostSince()
	h.mu.Lock()
	if !h.isLiveLocked(i, of) {
		h.mu.Unlock()
		return
	}
	h.live--
	until := h.deadlineLocked() // with that part: a process that was stopped hears of the loss late
	h.parts[i] = part{err: cause}
	if h.state == acquiring || h.enoughSinceLocked(since) {
		h.rejoinLocked()
		h.mu.Unlock()
		h.Verify() // what took this one away may have taken others
		return
	}
	h.lostSince = since
	ended := lease.Ended(title, h.lock.name, errs.ErrLost, cause.Error())
	left := h.endLocked(lost, until, ended)
	h.mu.Unlock()
	h.endContext(ended)
	drop(left)
	h.giveUp()
	h.logLost(ended)
}

// logLost logs the loss, once for all locks and all levels.
func (h *hold) logLost(cause error) {
	for o := h.outer; o != nil; o = o.outer {
		o.mu.Lock()
		released := o.state == released
		o.mu.Unlock()
		if !released { // it logs
			return
		}
	}
	if h.isPart {
		return
	}
	h.mu.Lock()
	loss := events.Loss{Kind: kinds.MultiLock, Name: h.lock.name, Owner: h.owner, Site: h.options.Site.String()}
	h.mu.Unlock()
	h.lock.core.Events.LogLost("lock", loss, cause)
}

// isLiveLocked reports whether a hold is that of a live part, and counts.
func (h *hold) isLiveLocked(i int, of held) bool {
	return h.parts[i].state == live && h.parts[i].held == of && !h.state.isOver()
}

// enoughSinceLocked reports whether enough of the live parts have been held all the time since then.
//
// Parts that are lost one after another are acquired again one after another: enough may be live at any time, although
// too few were held at one time. So a part that was acquired again does not count for the time before.
func (h *hold) enoughSinceLocked(since time.Time) bool {
	n := 0
	for i := range h.parts {
		if p := &h.parts[i]; p.state == live && !p.joined.After(since) {
			n++
		}
	}
	return n >= h.lock.quorum
}

// LostSince returns, of a lost hold, from when on too few of its parts were certain.
func (h *hold) LostSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostSince
}

// Verify lets the parts ask Redis soon whether they are still held.
func (h *hold) Verify() {
	for _, p := range h.snapshot() {
		if p.state == live {
			p.held.Verify()
		}
	}
}

// rejoinLocked schedules an attempt for the missing parts of a RedLock's renewed hold, several times within a lease.
func (h *hold) rejoinLocked() {
	idle := h.state != holding || h.options.Lease != nil || h.rejoin != nil
	if idle || h.lock.kind != red || h.live < h.lock.quorum || h.live+h.asked == len(h.parts) {
		return
	}
	length := lease.Term{Renewed: h.options.Renewed}.Length(h.lock.core)
	h.rejoin = time.AfterFunc(length/12+rand.N(length/24+1), h.attemptMissing)
}

func (h *hold) stopRejoinLocked() {
	if h.rejoin != nil {
		h.rejoin.Stop()
		h.rejoin = nil
	}
}

// attemptMissing attempts the missing parts once. Failed ones are attempted again later.
func (h *hold) attemptMissing() {
	h.mu.Lock()
	h.rejoin = nil
	o := h.options
	h.mu.Unlock()
	if o.MaxHold != nil {
		left := time.Until(h.maxHold)
		if left < lease.Shortest {
			return
		}
		o.MaxHold = &left
	}
	h.ask(context.WithoutCancel(h.given), &o) // the lock outlives the given context
}
