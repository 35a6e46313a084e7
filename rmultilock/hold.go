package rmultilock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	inner "github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/rlock"
)

// hold consists of the holds of several locks. It is safe for concurrent use.
//
// Lock order: its mu before that of a lease. It is not held during I/O or a call of a user's context.
type hold struct {
	lock    *Lock
	given   context.Context //nolint:containedctx // a hold's context is its contract: it descends from the one given
	outer   *hold           // hold of the same lock that this one is nested in; nil for the outermost
	isPart  bool            // of a hold of several locks, which logs its loss
	maxHold time.Time       // when renewal ends; zero for never
	prompt  time.Time       // until when a part counts as one of the call's round

	inner  context.Context //nolint:containedctx // its own context is made of it
	cancel context.CancelCauseFunc
	// 1: a token when an attempt has been answered; await receives it
	answered chan struct{}

	mu        sync.Mutex // guards all below
	state     state
	options   locker.Options // of its attempts
	parts     []part         // by member
	live      int            // parts in state live
	asked     int            // parts in state asked or askedAgain
	owner     string
	end       time.Time     // when the hold ended
	lostSince time.Time     // of a lost hold: from when on too few parts were certain
	cause     error         // why this side ended its context; nil while it has not
	listeners []func(error) // called with the cause
	rejoin    *time.Timer   // for the next attempt of a RedLock's missing parts; nil if none is due
}

// state is a hold's state. It only advances.
type state uint8

const (
	acquiring state = iota // its members are attempted
	holding
	released // by Unlock, or because it was not acquired
	lost     // too few parts are certain; the rest was released
)

func (s state) isOver() bool { return s >= released }

// part is the hold of one of the locks.
type part struct {
	state   partState
	held    held            // of a live or closing part
	joined  time.Time       // of a part that was acquired later than in the call's round: when that was
	attempt *locker.Attempt // of an asked part, to cancel it; nil for one that ends by itself
	err     error           // why it is missing
}

// partState is a part's state.
//
//	missing → asked, askedAgain → live → missing (lost)
//	                                   → closing
type partState uint8

const (
	missing    partState = iota // not asked yet, refused, failed or lost
	asked                       // the call's attempt is in flight
	askedAgain                  // an attempt is in flight while the others are held
	live                        // its lock is certain
	closing                     // its client closes: held until its release, but not counted
)

func (s partState) inFlight() bool { return s == asked || s == askedAgain }

// held is the hold of a lock as this package needs it.
type held interface {
	lease.Level
	Context() context.Context
	Unlock(ctx context.Context) error
	Extend(ctx context.Context, d time.Duration) error
	ExpiresAt() time.Time
	Owner() string
	OnEnd(fn func(cause error))
	Find(key any) any // the level at which a lookup in its context ends; nil if it goes on
	Verify()          // asks Redis soon whether the lock is still held

	// LostSince returns, of a lost hold, from when on others may have had the lock: that time, or an earlier one, or the
	// zero time.
	LostSince() time.Time
}

var _, _ held = (*lease.Hold)(nil), (*hold)(nil)

// heldBy returns the inside of a public hold; nil for none.
func heldBy(h *rlock.Hold) held {
	if h == nil {
		return nil
	}
	part, _ := (*inner.Hold)(h).Inside().(held)
	return part
}

func (c *call) newHold() *hold {
	h := &hold{lock: c.lock, given: c.ctx, outer: c.outer, isPart: c.isPart, options: c.options, prompt: time.Now().Add(c.masterLimit)}
	h.parts, h.answered = make([]part, len(c.lock.members)), make(chan struct{}, 1)
	if c.options.MaxHold != nil {
		h.maxHold = time.Now().Add(*c.options.MaxHold)
	}
	if h.outer != nil {
		h.inner, h.cancel = lease.NestContext(h.given, h.nestsIn)
	} else {
		h.inner, h.cancel = context.WithCancelCause(h.given)
	}
	return h
}

// begin turns the parts into a hold, if ctx has not ended and enough of them are still certain.
func (h *hold) begin() error {
	if h.given.Err() != nil { // not under the mutex: it is the user's code
		return errs.ErrNotAcquired
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	spare := len(h.parts) - h.lock.quorum
	for _, p := range h.parts {
		if p.state != closing {
			continue
		}
		if spare--; spare < 0 {
			return errs.ErrClosed
		}
	}
	// A part's deadline is its lease less the time that the answer took and an allowance for clock drift.
	if h.live < h.lock.quorum || !time.Now().Before(h.deadlineLocked()) {
		return errLate
	}
	h.state = holding
	h.rejoinLocked()
	if h.outer != nil {
		h.owner = h.outer.Owner()
		return nil
	}
	for _, p := range h.parts {
		if p.held != nil {
			h.owner = p.held.Owner()
			break
		}
	}
	return nil
}

func (h *hold) heldLocked() (all []held) {
	for _, p := range h.parts {
		if p.held != nil {
			all = append(all, p.held)
		}
	}
	return all
}

// deadlineLocked returns until when enough parts are promised: the k-th latest of their deadlines, if k are needed; the
// zero time if there are fewer.
func (h *hold) deadlineLocked() time.Time {
	var room [16]time.Time
	ends := room[:0]
	for i := range h.parts {
		if p := &h.parts[i]; p.held != nil {
			ends = append(ends, p.held.ExpiresAt())
		}
	}
	if len(ends) < h.lock.quorum {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[h.lock.quorum-1]
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
	if err := h.endedErrLocked(); err != nil {
		h.mu.Unlock()
		return err
	}
	h.options.Lease = &d // missing parts are not attempted any more
	h.stopRejoinLocked()
	left := h.heldLocked()
	h.mu.Unlock()
	err := h.extendAll(ctx, left, d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if over := h.endedErrLocked(); over != nil {
		return over
	}
	if errors.Is(err, errs.ErrNotHeld) { // the loss is about to be reported
		return errs.ErrLost
	}
	return err
}

// extendAll extends parts at the same time.
func (h *hold) extendAll(ctx context.Context, parts []held, d time.Duration) error {
	limited, end := h.lock.core.Bound(ctx)
	defer end()
	limited, stop := context.WithCancel(limited)
	defer stop()
	t := newTally(h.lock.quorum, len(parts))
	for _, p := range parts {
		go func() { t.answer(p.Extend(limited, d)) }() // ends with limited
	}
	err := t.waitAll(limited, min(max(d/masterShare, masterLeast), masterMost))
	if limited.Err() != nil && ctx.Err() == nil && errors.Is(err, limited.Err()) {
		return lease.ErrNoAnswer // the call timeout is over
	}
	return err
}

// endedErrLocked returns the error of a call on an ended hold; nil for a live one.
func (h *hold) endedErrLocked() error {
	switch h.state {
	case lost:
		return errs.ErrLost
	case released:
		return errs.ErrNotHeld
	}
	return nil
}

// Token returns 0: the locks have no common token.
func (h *hold) Token() int64 { return 0 }

// Name returns the lock's name.
func (h *hold) Name() string { return h.lock.name }

// ExpiresAt returns until when exclusion is promised, as of now; for an ended hold, when it ended.
func (h *hold) ExpiresAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.isOver() {
		return h.end
	}
	return h.deadlineLocked()
}

// Owner returns the owner id of the first part; a nested level has that of its outermost hold.
func (h *hold) Owner() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner
}

func (h *hold) snapshot() []part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.parts)
}
