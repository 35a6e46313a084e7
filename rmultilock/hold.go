package rmultilock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// state is where a hold is in its life.
type state uint8

const (
	asking state = iota
	holding
	over
)

// hold is made of the holds of several locks, of which so many are needed. It is safe for concurrent use.
//
// Lock order: its mu before that of a lease. It is not held during I/O or a call of a user's.
type hold struct {
	lock  *Lock
	given context.Context //nolint:containedctx // a hold's context is its contract: it descends from the one given
	outer *hold           // of the same lock, in which this one is nested; nil for the outermost

	inner  context.Context //nolint:containedctx // what its own context is made of
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards all below
	state   state
	parts   []part        // by member
	live    int           // parts whose locks are certain
	waiting int           // parts that have not been answered yet, while asking
	decided chan struct{} // 1: enough was answered; for who asks
	owner   string
	end     time.Time // when it ended
	lost    bool      // it ended by a loss
	keeper  keeper    // of a RedLock
}

// part is the hold of one of the locks.
type part struct {
	held  held
	lease *lease.Hold // the same, if it is one of package lease; else nil
	ended bool        // its client closes, and it waits for its release
	gone  bool        // it was released, or its client has closed: it cannot be renewed any more
	asked bool        // a try is under way
	try   *lease.Try  // that try, unless the lock answers it by itself
	err   error       // what the last try came to
}

// held is the hold of a lock as this package needs it.
type held interface {
	Context() context.Context
	Unlock(ctx context.Context) error
	Extend(ctx context.Context, d time.Duration) error
	Deadline() time.Time
	Owner() string
}

func (c *call) newHold() *hold {
	n := len(c.lock.members)
	h := &hold{lock: c.lock, given: c.ctx, outer: c.outer}
	h.parts, h.waiting, h.decided = make([]part, n), n, make(chan struct{}, 1)
	if h.outer != nil {
		h.inner, h.cancel = lease.Nest(h.given, h.within)
	} else {
		h.inner, h.cancel = context.WithCancelCause(h.given)
	}
	return h
}

// answer takes what a try for one of the locks came to. What comes when nobody wants it any more is released at once.
func (h *hold) answer(i int, p part, err error) {
	h.mu.Lock()
	if h.state == over || h.parts[i].held != nil {
		h.mu.Unlock()
		if p.held != nil {
			p.drop()
		}
		return
	}
	p.err = err
	h.parts[i] = p
	if p.held != nil {
		h.live++
	}
	if h.state == asking {
		h.waiting--
		if h.live >= h.lock.need || h.live+h.waiting < h.lock.need || h.waiting == 0 {
			select {
			case h.decided <- struct{}{}:
			default: // a token is there already
			}
		}
	}
	h.mu.Unlock()
	switch {
	case p.lease != nil:
		p.lease.OnEnd(func(cause error) { h.partEnded(i, p.held, cause) })
	case p.held != nil:
		ctx := p.held.Context()
		context.AfterFunc(ctx, func() { h.partEnded(i, p.held, context.Cause(ctx)) })
	}
}

// asks notes the try for a lock that is under way, unless nobody wants it any more.
func (h *hold) asks(i int, try *lease.Try) {
	h.mu.Lock()
	unwanted := h.state == over
	if h.parts[i].asked {
		h.parts[i].try = try
	}
	h.mu.Unlock()
	if unwanted {
		try.GiveUp()
	}
}

// giveUp gives up the tries under way after the hold has ended.
func (h *hold) giveUp() {
	for _, p := range h.snapshot() {
		if p.held == nil {
			p.try.GiveUp()
		}
	}
}

// drop releases a part that nobody wants, without waiting for it.
func (p part) drop() {
	p.release(context.Background(), func(error) {}) //nolint:forbidigo // bounded; what cannot be released is settled
}

// release ends a part. done hears what came of it, unless that stays unknown.
func (p part) release(ctx context.Context, done func(error)) {
	if p.lease != nil && p.lease.BeginUnlock(done) {
		return
	}
	go func() { done(guard(func() error { return p.held.Unlock(ctx) })) }() // ends with the Unlock, which is bounded
}

// partEnded hears that a part was lost, or that its client closes.
func (h *hold) partEnded(i int, who held, cause error) {
	closing := errors.Is(cause, errs.ErrClosed)
	if !closing && !errors.Is(cause, errs.ErrLost) {
		return // released by this side; or only its context ended, with the one that was given
	}
	h.mu.Lock()
	p := &h.parts[i]
	if p.held != who || p.ended || h.state == over {
		h.mu.Unlock()
		return
	}
	h.live--
	if closing {
		p.ended = true // it stays held until it is released
	} else {
		*p = part{err: cause}
	}
	if h.state != holding || h.live >= h.lock.need {
		h.keeper.soonLocked()
		h.mu.Unlock()
		return
	}
	var left []part
	why := errs.ErrClosed
	if !closing {
		why, h.lost = errs.ErrLost, true
		left = h.overLocked()
	}
	h.mu.Unlock()
	h.cancel(lease.Ended(title, h.lock.name, why, cause.Error()))
	for _, p := range left {
		p.drop()
	}
	if !closing {
		h.giveUp()
	}
}

// overLocked ends the hold. It returns the parts that are to be released.
func (h *hold) overLocked() []part {
	h.end = h.deadlineLocked()
	if now := time.Now(); now.Before(h.end) || h.end.IsZero() {
		h.end = now
	}
	h.state = over
	h.keeper.stopLocked()
	var left []part
	for _, p := range h.parts {
		if p.held != nil {
			left = append(left, p)
		}
	}
	return left
}

// deadlineLocked returns until when enough of the parts are promised: the k-th latest, if k are needed; the zero time if
// there are fewer.
func (h *hold) deadlineLocked() time.Time {
	var room [16]time.Time
	ends := room[:0]
	for i := range h.parts {
		if p := &h.parts[i]; p.held != nil {
			ends = append(ends, p.held.Deadline())
		}
	}
	if len(ends) < h.lock.need {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[h.lock.need-1]
}

// Unlock releases all parts at the same time. It returns once as many as make a hold have confirmed it.
func (h *hold) Unlock(ctx context.Context) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	h.mu.Lock()
	if h.state != holding {
		h.mu.Unlock()
		return errs.ErrNotHeld
	}
	left := h.overLocked()
	h.mu.Unlock()
	h.cancel(lease.Unlocked(title, h.lock.name, h))
	h.giveUp()
	limit := min(unlockLimit, max(time.Until(latest(left)), unlockLeast))
	if deadline, ok := ctx.Deadline(); ok {
		if rest := time.Until(deadline); rest > 0 {
			limit = min(limit, max(rest, unlockFloor))
		}
	}
	return h.release(ctx, left, limit)
}

// latest returns until when one of the parts is promised at the most: nothing is left to release then.
func latest(parts []part) (end time.Time) {
	for _, p := range parts {
		if at := p.held.Deadline(); at.After(end) {
			end = at
		}
	}
	return end
}

const (
	unlockLimit = 3 * time.Second        // an Unlock takes no longer
	unlockLeast = 10 * time.Millisecond  // but waits for an answer so long when the lease is over
	unlockFloor = 100 * time.Millisecond // a deadline of ctx that is nearer than this is not heeded
)

// release releases parts and waits until enough have confirmed it, all have answered, or the limit is over.
func (h *hold) release(ctx context.Context, left []part, limit time.Duration) error {
	t := newTally(h.lock.need, len(left))
	for i, p := range left {
		p.release(ctx, func(err error) { t.answer(i, err) })
	}
	return t.wait(limit)
}

// Extend sets the lease of all parts anew and ends renewal.
func (h *hold) Extend(ctx context.Context, d time.Duration) error {
	if err := lease.CheckLease(d); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	if err := h.overErrLocked(); err != nil {
		h.mu.Unlock()
		return err
	}
	h.keeper.stopLocked()
	var left []part
	for _, p := range h.parts {
		if p.held != nil {
			left = append(left, p)
		}
	}
	h.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := newTally(h.lock.need, len(left))
	for i, p := range left {
		go func() { t.answer(i, guard(func() error { return p.held.Extend(ctx, d) })) }() // ends with ctx
	}
	err := t.all(ctx, nodeLimit(d))
	h.mu.Lock()
	defer h.mu.Unlock()
	if gone := h.overErrLocked(); gone != nil {
		return gone
	}
	if errors.Is(err, errs.ErrNotHeld) { // the news of the loss is on its way
		return errs.ErrLost
	}
	return err
}

// overErrLocked returns the error for a call on a hold that has ended; nil for one that has not.
func (h *hold) overErrLocked() error {
	switch {
	case h.lost:
		return errs.ErrLost
	case h.state == over:
		return errs.ErrNotHeld
	}
	return nil
}

// Token returns 0: several locks have no token in common.
func (h *hold) Token() int64 { return 0 }

// Name returns the lock's name.
func (h *hold) Name() string { return h.lock.name }

// Deadline returns until when exclusion is promised as of now; the time of its end if the hold is over.
func (h *hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == over {
		return h.end
	}
	return h.deadlineLocked()
}

// Owner returns the id under which the first part is held; a nested level has that of its outermost hold.
func (h *hold) Owner() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner
}

// startLocked makes a hold of the parts that were acquired.
func (h *hold) startLocked() {
	h.state = holding
	if h.outer != nil {
		h.owner = h.outer.Owner()
		return
	}
	for _, p := range h.parts {
		if p.held != nil {
			h.owner = p.held.Owner()
			return
		}
	}
}
