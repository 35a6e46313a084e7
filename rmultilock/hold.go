package rmultilock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/rlock"
)

// hold consists of the holds of several locks. It is safe for concurrent use.
//
// Lock order: its mu before that of a lease. It is not held during I/O or a call of a user's context.
type hold struct {
	lock    *Lock
	given   context.Context //nolint:containedctx // a hold's context is its contract: it descends from the one given
	outer   *hold           // hold of the same lock that this one is nested in; nil for the outermost
	maxHold time.Time       // when renewal ends; zero for never

	inner  context.Context //nolint:containedctx // its own context is made of it
	cancel context.CancelCauseFunc
	news   chan struct{} // 1: a token when an attempt has been answered; await receives it

	mu        sync.Mutex // guards all below
	state     state
	options   lease.Options // of its attempts
	parts     []part        // by member
	live      int           // parts in state live
	asked     int           // parts in state asked or askedAgain
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

// part is the hold of one of the locks.
type part struct {
	state   partState
	held    held           // of a live or closing part
	joined  time.Time      // of a part that was asked again: when it was acquired; zero for the others
	attempt *lease.Attempt // of an asked part, to cancel it; nil for one that ends by itself
	err     error          // why it is missing
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

// held is the hold of a lock as this package needs it.
type held interface {
	lease.Level
	Context() context.Context
	Unlock(ctx context.Context) error
	Extend(ctx context.Context, d time.Duration) error
	Deadline() time.Time
	Owner() string
	OnEnd(fn func(cause error))
	Find(key any) any // the level at which a lookup in its context ends; nil if it goes on
	Recheck()         // asks Redis soon whether the lock is still held

	// LostSince returns, of a lost hold, from when on others may have had the lock: that time, or an earlier one, or the
	// zero time.
	LostSince() time.Time
}

var _, _ held = (*lease.Hold)(nil), (*hold)(nil)

func (p *part) inFlight() bool { return p.state == asked || p.state == askedAgain }

// heldBy returns the inside of a public hold; nil for none.
func heldBy(h *rlock.Hold) held {
	inner, _ := rlock.Unwrap(h).(held)
	return inner
}

func (c *call) newHold() *hold {
	h := &hold{lock: c.lock, given: c.ctx, outer: c.outer, options: c.options}
	h.parts, h.news = make([]part, len(c.lock.members)), make(chan struct{}, 1)
	if c.options.MaxHold != nil {
		h.maxHold = time.Now().Add(*c.options.MaxHold)
	}
	if h.outer != nil {
		h.inner, h.cancel = lease.Nest(h.given, h.within)
	} else {
		h.inner, h.cancel = context.WithCancelCause(h.given)
	}
	return h
}

// ask sends attempts for the missing parts.
func (h *hold) ask(ctx context.Context, o *lease.Options) {
	var names []*lease.Name
	var sent []int
	for _, i := range h.toAsk() {
		m := h.lock.members[i]
		if m.sent(ctx) {
			names, sent = append(names, m.name), append(sent, i)
			continue
		}
		go func() { // ends with the attempt, which does not wait for the lock
			got, err := m.locker.TryLock(ctx, only(o))
			h.answer(i, heldBy(got), err)
		}()
	}
	attempts := lease.AttemptAll(ctx, names, o, func(i int, got *lease.Hold, err error) {
		if err != nil {
			h.answer(sent[i], nil, err)
			return
		}
		h.answer(sent[i], got, nil)
	})
	h.mu.Lock()
	unwanted := h.state >= released
	for i, a := range attempts {
		if p := &h.parts[sent[i]]; p.inFlight() {
			p.attempt = a
		}
	}
	h.mu.Unlock()
	if unwanted {
		for _, a := range attempts {
			a.GiveUp()
		}
	}
}

// toAsk marks the missing parts as asked, except those whose error is final, and returns them.
func (h *hold) toAsk() (parts []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.parts {
		if p := &h.parts[i]; p.state == missing && !isFinal(p.err) && h.state < released {
			p.state = asked
			if h.state == holding {
				p.state = askedAgain
			}
			h.asked++
			parts = append(parts, i)
		}
	}
	return parts
}

// answer takes the result of an attempt for one of the locks. It releases a lock that is no longer wanted.
func (h *hold) answer(i int, got held, err error) {
	h.mu.Lock()
	p := &h.parts[i]
	again := p.state == askedAgain
	if p.inFlight() {
		h.asked--
	}
	*p = part{err: err}
	unwanted := h.state >= released
	switch {
	case got == nil:
		h.rejoinLocked()
	case !unwanted:
		p.state, p.held = live, got
		h.live++
		if again {
			p.joined = time.Now()
		}
	}
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default: // a token is there already
	}
	switch {
	case got == nil:
	case unwanted:
		drop([]held{got})
	default:
		got.OnEnd(func(cause error) { h.partEnded(i, got, cause) })
		if again {
			h.Recheck() // so that the others were confirmed after this one joined; see enoughSinceLocked
		}
	}
}

// await waits until the attempts are decided, ctx is done, or the limit is over. After a refusal it waits briefly for
// the remaining answers: to cancel an attempt costs more than to await its answer.
func (h *hold) await(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	end := time.Now().Add(limit)
	for refused := false; ; {
		h.mu.Lock()
		enough, open, hopeless := h.live >= h.lock.quorum, h.asked > 0, h.live+h.asked < h.lock.quorum
		h.mu.Unlock()
		if enough || !open {
			return
		}
		if hopeless && !refused {
			refused = true
			timer.Reset(min(shortWait, time.Until(end)))
		}
		select {
		case <-h.news:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// errNoAnswer is the error of a lock whose answer was not awaited any longer.
var errNoAnswer = errors.New("no answer in time")

// failure returns the first part of a multi-lock that was not acquired, and why. Parts with a final error come before
// all others.
func (h *hold) failure() (member int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.parts) - 1; i >= 0; i-- {
		why := h.parts[i].err
		switch {
		case h.parts[i].held != nil:
			continue
		case why == nil:
			why = fmt.Errorf("%w: %w", errs.ErrUnknown, errNoAnswer)
		}
		if err == nil || isFinal(why) || !isFinal(err) {
			member, err = i, why
		}
	}
	return member, err
}

// shortfall returns how many locks of a RedLock were granted, and why that is not enough: a final error if such errors
// alone prevent a majority, ErrUnavailable if too few servers answered, otherwise ErrNotAcquired.
func (h *hold) shortfall() (granted int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live >= h.lock.quorum {
		return h.live, nil
	}
	var final, failure error
	finals, failures := 0, 0
	for _, p := range h.parts {
		switch {
		case p.held != nil:
		case p.err == nil:
			failures, failure = failures+1, errNoAnswer
		case isFinal(p.err):
			finals, final = finals+1, p.err
		case !errors.Is(p.err, errs.ErrNotAcquired):
			failures, failure = failures+1, p.err
		}
	}
	spare := len(h.parts) - h.lock.quorum
	switch {
	case finals > spare:
		return h.live, final
	case finals+failures > spare:
		if failure == nil {
			failure = final
		}
		return h.live, fmt.Errorf("%w: %w: %d of %d locks failed: %w", errs.ErrNotAcquired, errs.ErrUnavailable, finals+failures, len(h.parts), failure)
	}
	return h.live, errs.ErrNotAcquired
}

// begin turns the parts into a hold, if enough are still certain.
func (h *hold) begin() bool {
	if h.given.Err() != nil { // not under the mutex: it is the user's code
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// A part's deadline is its lease less the time that the answer took and an allowance for clock drift.
	if h.live < h.lock.quorum || !time.Now().Before(h.deadlineLocked()) {
		return false
	}
	h.state = holding
	h.rejoinLocked()
	if h.outer != nil {
		h.owner = h.outer.Owner()
		return true
	}
	for _, p := range h.parts {
		if p.held != nil {
			h.owner = p.held.Owner()
			break
		}
	}
	return true
}

// abandon releases what was acquired, and what is acquired later, after a failed round. It waits for the releases until
// the limit is over or ctx is done.
func (h *hold) abandon(ctx context.Context, limit time.Duration) {
	h.mu.Lock()
	left := h.overLocked(released)
	h.mu.Unlock()
	h.endContext(errs.ErrNotAcquired)
	h.giveUp()
	q := release(ctx, len(left), left)
	_ = q.wait(limit, ctx.Done()) // the rest is released in the background
}

// giveUp cancels the attempts in flight after the hold has ended.
func (h *hold) giveUp() {
	for _, p := range h.snapshot() {
		p.attempt.GiveUp()
	}
}

// release sends the releases of holds: the lock that others wait for first is released last.
func release(ctx context.Context, need int, left []held) *quorum {
	q := newQuorum(need, len(left))
	unlock := func(of held) { q.answer(of.Unlock(ctx)) } // bounded
	var leases []*lease.Hold
	for _, of := range slices.Backward(left) {
		if l, ok := of.(*lease.Hold); ok {
			leases = append(leases, l)
			continue
		}
		go unlock(of)
	}
	for _, i := range lease.UnlockAll(leases, func(_ int, err error) { q.answer(err) }) {
		go unlock(leases[i])
	}
	return q
}

// drop releases unwanted holds without waiting.
func drop(left []held) {
	release(context.Background(), len(left), left) //nolint:forbidigo // bounded; what cannot be released is settled
}

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
	h.parts[i] = part{err: cause}
	if h.state == acquiring || h.enoughSinceLocked(since) {
		h.rejoinLocked()
		h.mu.Unlock()
		h.Recheck() // what took this one away may have taken others
		return
	}
	h.lostSince = since
	left := h.overLocked(lost)
	h.mu.Unlock()
	h.endContext(lease.Ended(title, h.lock.name, errs.ErrLost, cause.Error()))
	drop(left)
	h.giveUp()
}

// isLiveLocked reports whether a hold is that of a live part, and counts.
func (h *hold) isLiveLocked(i int, of held) bool {
	return h.parts[i].state == live && h.parts[i].held == of && h.state < released
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

// overLocked ends the hold, and returns the parts to release.
func (h *hold) overLocked(end state) (left []held) {
	h.end = h.deadlineLocked()
	if now := time.Now(); now.Before(h.end) || h.end.IsZero() {
		h.end = now
	}
	h.state = end
	h.stopRejoinLocked()
	return h.heldLocked()
}

func (h *hold) heldLocked() (all []held) {
	for _, p := range h.parts {
		if p.held != nil {
			all = append(all, p.held)
		}
	}
	return all
}

// rejoinLocked schedules an attempt for the missing parts of a RedLock's renewed hold, several times within a lease.
func (h *hold) rejoinLocked() {
	idle := h.state != holding || h.options.Lease != nil || h.rejoin != nil
	if idle || h.lock.kind != red || h.live < h.lock.quorum || h.live+h.asked == len(h.parts) {
		return
	}
	length := h.lock.core.Lease
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
		if left < shortestLease {
			return
		}
		o.MaxHold = &left
	}
	h.ask(context.WithoutCancel(h.given), &o) // the lock outlives the given context
}

// shortestLease is the shortest lease that a lock may have.
const shortestLease = 10 * time.Millisecond

// Recheck lets the parts ask Redis soon whether they are still held.
func (h *hold) Recheck() {
	for _, p := range h.snapshot() {
		if p.state == live {
			p.held.Recheck()
		}
	}
}

// LostSince returns, of a lost hold, from when on too few of its parts were certain.
func (h *hold) LostSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostSince
}

// deadlineLocked returns until when enough parts are promised: the k-th latest of their deadlines, if k are needed; the
// zero time if there are fewer.
func (h *hold) deadlineLocked() time.Time {
	var room [16]time.Time
	ends := room[:0]
	for i := range h.parts {
		if p := &h.parts[i]; p.held != nil {
			ends = append(ends, p.held.Deadline())
		}
	}
	if len(ends) < h.lock.quorum {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[h.lock.quorum-1]
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
	h.mu.Lock()
	if h.state != holding {
		h.mu.Unlock()
		return errs.ErrNotHeld
	}
	left := h.overLocked(released)
	h.mu.Unlock()
	h.endContext(lease.Unlocked(title, h.lock.name, h))
	h.giveUp()
	limit := min(unlockLimit, h.lock.core.CallTimeout, max(time.Until(latest(left)), unlockLeast))
	if deadline, ok := ctx.Deadline(); ok {
		if rest := time.Until(deadline); rest > 0 {
			limit = min(limit, max(rest, unlockFloor))
		}
	}
	return release(ctx, h.lock.quorum, left).wait(limit, nil)
}

// latest returns the latest deadline of the parts: after it nothing is left to release.
func latest(parts []held) (end time.Time) {
	for _, p := range parts {
		if at := p.Deadline(); at.After(end) {
			end = at
		}
	}
	return end
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
	h.options.Lease = &d // missing parts are not attempted any more
	h.stopRejoinLocked()
	left := h.heldLocked()
	h.mu.Unlock()
	err := h.extendAll(ctx, left, d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if over := h.overErrLocked(); over != nil {
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
	q := newQuorum(h.lock.quorum, len(parts))
	for _, p := range parts {
		go func() { q.answer(p.Extend(limited, d)) }() // ends with limited
	}
	err := q.waitAll(limited, min(max(d/nodeShare, nodeLeast), nodeMost))
	if limited.Err() != nil && ctx.Err() == nil && errors.Is(err, limited.Err()) {
		return fmt.Errorf("%w: %w", errs.ErrUnknown, errNoAnswer) // the call timeout is over
	}
	return err
}

// overErrLocked returns the error of a call on an ended hold; nil for a live one.
func (h *hold) overErrLocked() error {
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

// Deadline returns until when exclusion is promised, as of now; for an ended hold, when it ended.
func (h *hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state >= released {
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
