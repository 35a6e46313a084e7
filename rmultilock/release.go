package rmultilock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// abandon releases what was acquired, and what is acquired later, after a failed round. It waits for the releases until
// the limit is over or ctx is done.
func (h *hold) abandon(ctx context.Context, limit time.Duration) {
	h.mu.Lock()
	left := h.endLocked(released, h.deadlineLocked(), errs.ErrNotAcquired)
	h.mu.Unlock()
	h.endContext(errs.ErrNotAcquired)
	h.giveUp()
	t := release(ctx, len(left), left, (*lease.Hold).Settle)
	_ = t.wait(limit, ctx.Done()) // the rest is released in the background
}

// giveUp cancels the attempts in flight after the hold has ended.
func (h *hold) giveUp() {
	for _, p := range h.snapshot() {
		p.attempt.GiveUp()
	}
}

// endLocked ends the hold, which was promised until then, and returns the parts to release. The caller then ends the context.
func (h *hold) endLocked(end state, until time.Time, cause error) (left []held) {
	if h.cause == nil {
		h.cause = cause
	}
	h.end = until
	if now := time.Now(); now.Before(until) || until.IsZero() {
		h.end = now
	}
	h.state = end
	h.stopRejoinLocked()
	return h.heldLocked()
}

const (
	unlockLimit = 3 * time.Second        // longest wait of an Unlock
	unlockLeast = 10 * time.Millisecond  // its wait once the lease is over
	unlockFloor = 100 * time.Millisecond // a nearer deadline of ctx counts as this
)

// Unlock releases all parts at the same time. It returns once enough parts for a hold have confirmed their release.
func (h *hold) Unlock(ctx context.Context) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	if h.late() {
		h.noticeLoss()
	}
	h.mu.Lock()
	if h.state != holding {
		h.mu.Unlock()
		return errs.ErrNotHeld
	}
	unlocked := lease.Unlocked(title, h.lock.name, h)
	left := h.endLocked(released, h.deadlineLocked(), unlocked)
	h.mu.Unlock()
	h.endContext(unlocked)
	h.giveUp()
	limit := min(unlockLimit, h.lock.core.CallTimeout, max(time.Until(latest(left)), unlockLeast))
	if deadline, ok := ctx.Deadline(); ok {
		if rest := time.Until(deadline); rest > 0 {
			limit = min(limit, max(rest, unlockFloor))
		}
	}
	err := release(ctx, h.lock.quorum, left, nil).wait(limit, nil)
	h.lock.wakeNext(h.given)
	if errors.Is(err, errs.ErrNotHeld) {
		h.logLost(lease.Ended(title, h.lock.name, errs.ErrLost, lease.CauseGone))
	}
	return lease.Unlocking(ctx, err)
}

// latest returns the latest deadline of the parts: after it nothing is left to release.
func latest(parts []held) (end time.Time) {
	for _, p := range parts {
		if at := p.ExpiresAt(); at.After(end) {
			end = at
		}
	}
	return end
}

// release sends the releases of holds: the lock that others wait for first is released last. refused, if it is not nil, takes those that
// Redis has refused, for example for want of a permission.
func release(ctx context.Context, need int, left []held, refused func(*lease.Hold)) *tally {
	t := newTally(need, len(left))
	unlock := func(of held) { t.answer(of.Unlock(ctx)) } // bounded
	var leases []*lease.Hold
	answer := func(i int, err error) {
		if refused != nil && script.Final(err) {
			refused(leases[i])
		}
		t.answer(err)
	}
	for _, of := range slices.Backward(left) {
		if l, ok := of.(*lease.Hold); ok {
			leases = append(leases, l)
			continue
		}
		go unlock(of)
	}
	for _, i := range lease.UnlockAll(leases, answer) {
		go func() { answer(i, leases[i].Unlock(ctx)) }() // bounded
	}
	return t
}

// drop releases unwanted holds without waiting.
func drop(left []held) {
	release(context.Background(), len(left), left, (*lease.Hold).Settle) //nolint:forbidigo // bounded; what cannot be released is settled
}
