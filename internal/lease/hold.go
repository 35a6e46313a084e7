package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/keepalive"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
)

// Mode is how a level holds its lock.
type Mode = keepalive.Mode

// The modes.
const (
	Write Mode = iota // alone; the mode of every lock but the read lock
	Read              // together with other readers
)

// Levels counts the levels of a lease by mode.
type Levels struct{ Write, Read int }

// Hold is one level of a lease. It is safe for concurrent use. What users can reach of a nil hold answers as one that has ended.
type Hold struct {
	lease *Lease
	given context.Context //nolint:containedctx // a hold's context is its contract: it descends from the one given
	outer *Hold           // the level that this one is nested in; nil for the outermost

	// The rest is guarded by the lease's mu.

	next   *Hold                   // the next live level of the lease
	fixed  time.Duration           // when a level of fixed lease ends, on the client's clock; 0 for one that is renewed
	length time.Duration           // the lease, which decides the margin
	limit  time.Duration           // when renewal ends for good, 0 for never; once it is over, when it ended
	inner  context.Context         //nolint:containedctx // made when first asked for
	cancel context.CancelCauseFunc // what to call when it ends; nil for nothing
	cause  error                   // why the context ended; nil while it has not ended by this hold's doing
	mode   Mode                    // never changes
	over   bool                    // unlocked or lost
	part   bool                    // of a hold of several locks; never changes
	site   events.Site             // never changes
}

// OnEnd has fn called once, with the cause, when this side ends the hold's context: when the lock is unlocked or lost or the
// client closes, at once if that has happened. The end of the context that the hold was given does not count. It must not block.
func (h *Hold) OnEnd(fn func(cause error)) {
	h.lease.mu.Lock()
	cause := h.cause
	if cause == nil {
		h.cancel = both(h.cancel, fn)
	}
	h.lease.mu.Unlock()
	if cause != nil {
		fn(cause)
	}
}

// both returns a function that calls two, of which either may be nil.
func both(first, second context.CancelCauseFunc) context.CancelCauseFunc {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(cause error) {
		first(cause)
		second(cause)
	}
}

// Searcher is a key by which a context is searched for the live hold of a lock.
type Searcher interface {
	// Finds reports whether it looks for levels of the lease.
	Finds(l *Lease) bool
}

// Searches reports whether the key is a Searcher.
func Searches(key any) bool {
	_, ok := key.(Searcher)
	return ok
}

// Answers reports whether such a search ends at this hold.
func (h *Hold) Answers(key any) bool {
	s, ok := key.(Searcher)
	return ok && s.Finds(h.lease) && h.live()
}

// AddLocked adds a level of writing to a lease that is handed off.
func (l *Lease) AddLocked(given context.Context, t Term, now time.Duration) *Hold {
	return l.newHoldLocked(given, t, Write, now)
}

// newHoldLocked adds a level to a lease.
func (l *Lease) newHoldLocked(given context.Context, t Term, mode Mode, sent time.Duration) *Hold {
	l.member.Leave()
	h := &Hold{lease: l, given: given, mode: mode, site: t.Site, part: t.Part, next: l.levels}
	h.length = t.Length(l.manager.core)
	switch {
	case t.Lease != nil:
		h.fixed = sent + h.length
	case t.MaxHold != nil:
		h.limit = sent + *t.MaxHold
	}
	if t.Lease == nil {
		l.renewWithLocked(t.renewed(l.manager.core))
	}
	l.levels = h
	return h
}

// renewedLocked reports whether the level lasts for as long as its lease is renewed, though not beyond its limit.
func (h *Hold) renewedLocked() bool { return h.fixed == 0 }

// deadlineLocked returns until when exclusion is promised, on the client's clock.
func (h *Hold) deadlineLocked() time.Duration {
	if h.fixed != 0 {
		return h.fixed - core.Margin(h.length)
	}
	end := h.lease.member.End()
	if h.limit != 0 {
		end = min(end, h.limit)
	}
	return end - core.Margin(h.length)
}

// lateLocked reports whether a level that is not over should be: its timer has not run yet.
func (h *Hold) lateLocked(now time.Duration) bool {
	return h.lease.state == holding && now >= h.deadlineLocked()
}

// Mode returns how the level holds the lock.
func (h *Hold) Mode() Mode { return h.mode }

// Owner returns the id under which Redis knows the holder.
func (h *Hold) Owner() string {
	if h == nil {
		return ""
	}
	return h.lease.ownerID()
}

// Token returns the fencing token; 0 if there is none.
func (h *Hold) Token() int64 {
	if h == nil {
		return 0
	}
	return h.lease.token
}

// Name returns the lock's name as the user gave it.
func (h *Hold) Name() string {
	if h == nil {
		return ""
	}
	return h.lease.user()
}

// ExpiresAt returns until when exclusion is promised as of now; the time of its end if the hold is over.
func (h *Hold) ExpiresAt() time.Time {
	if h == nil {
		return time.Time{}
	}
	h.lease.mu.Lock()
	at := h.deadlineLocked()
	if h.over {
		at = h.limit
	}
	h.lease.mu.Unlock()
	return h.lease.manager.core.Clock.Time(at)
}

// endLocked ends the level. The result is to be called without the mutex.
func (h *Hold) endLocked(cause error) func() {
	h.markOverLocked(h.lease.now())
	return h.endContextLocked(cause)
}

func (h *Hold) markOverLocked(now time.Duration) {
	h.limit = min(now, h.deadlineLocked())
	h.over = true
}

// live reports whether the level holds the lock as far as this side knows.
func (h *Hold) live() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return !h.over
}

// Extend sets the lease anew, to d from now, and ends the renewal of this level.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	if err := CheckLease(d); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	if h == nil {
		return errs.ErrNotHeld
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	bound, stop := h.lease.manager.core.Bound(ctx)
	defer stop()
	err := h.extend(bound, d)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && bound != ctx {
		return ErrNoAnswer
	}
	return err
}

func (h *Hold) extend(ctx context.Context, d time.Duration) error {
	l := h.lease
	ops, err := l.beginOperation(ctx)
	if err != nil {
		return core.Conclude(ctx, script.NotDone, script.ErrNotSent)
	}
	defer ops.done()
	l.mu.Lock()
	if err = h.overLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	sent := l.now()
	if h.fixed == 0 {
		h.fixLocked(h.endsAtLocked(), h.length) // no renewal from here on
	}
	levels, length := l.countLocked(), h.coverLocked(sent, d)
	wait := l.member.Renewing()
	l.mu.Unlock()
	if err = await(ctx, wait); err != nil {
		return err
	}
	l.mu.Lock()
	if err := h.overLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	h.shortenLocked(l.now(), d)
	l.mu.Unlock()
	kept, sent, err := l.keep(ctx, levels, length)
	switch {
	case errors.Is(err, errGivenUp):
		return h.whyOver()
	case err != nil:
		return err
	case !kept:
		l.Gone()
		return errs.ErrLost
	}
	return h.extended(sent, d)
}

// whyOver returns why nothing can be done any more for a level whose lease was given up.
func (h *Hold) whyOver() error {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return cmp.Or(h.overLocked(), errs.ErrNotHeld)
}

// coverLocked returns the lease that covers d for this level, and every other one: also where a renewal overtakes the call that sets it.
func (h *Hold) coverLocked(sent, d time.Duration) time.Duration {
	d = max(d, h.lease.lengthLocked(sent))
	for other := h.lease.levels; other != nil; other = other.next {
		if other != h {
			d = max(d, other.endsAtLocked()-sent)
		}
	}
	return d
}

// shortenLocked ends the level after d if that is sooner: the extension which is about to be sent may never be answered.
func (h *Hold) shortenLocked(sent, d time.Duration) {
	if end := sent + d; end < h.fixed && !h.over {
		h.fixLocked(end, d)
	}
}

// extended takes Redis's yes: the level ends after d.
func (h *Hold) extended(sent, d time.Duration) error {
	l := h.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.over {
		return h.overLocked()
	}
	h.fixLocked(sent+d, d)
	return nil
}

// endsAtLocked returns when the level ends if nothing more is done for it.
func (h *Hold) endsAtLocked() time.Duration {
	switch {
	case h.fixed != 0:
		return h.fixed
	case h.limit != 0:
		return min(h.limit, h.lease.member.End())
	}
	return h.lease.member.End()
}

// fixLocked gives the level an end of its own: it is not renewed from here on.
func (h *Hold) fixLocked(end, length time.Duration) {
	h.lease.member.Leave()
	h.fixed, h.limit, h.length = end, 0, length
	h.lease.ArmLocked()
}

// overLocked returns the error for a call on a hold that has ended; nil for one that has not.
func (h *Hold) overLocked() error {
	if !h.over {
		return nil
	}
	if e, ok := h.cause.(*endCause); ok && e.err == errs.ErrLost { //nolint:errorlint // the hold's own cause, never wrapped
		return errs.ErrLost
	}
	return h.notHeldLocked()
}

// notHeldLocked returns the error of an Unlock of a level that is over.
func (h *Hold) notHeldLocked() error {
	if e, ok := h.cause.(*endCause); ok && e.err == errs.ErrClosed { //nolint:errorlint // the hold's own cause, never wrapped
		return errReleased
	}
	return errs.ErrNotHeld
}

// errReleased is ErrNotHeld for a level that ended after its client had begun to close.
var errReleased = fmt.Errorf("%w: the client has closed", errs.ErrNotHeld)

func (l *Lease) countLocked() Levels {
	var n Levels
	for h := l.levels; h != nil; h = h.next {
		if h.mode == Read {
			n.Read++
		} else {
			n.Write++
		}
	}
	return n
}

// Find returns the hold if the search of a context for a lock's hold ends at it, else nil.
func (h *Hold) Find(key any) any {
	if h.Answers(key) {
		return h
	}
	return nil
}

// Verify asks Redis soon whether the lease is still there.
func (h *Hold) Verify() { h.lease.Verify() }

// LostSince returns, of a lost hold, from when on others may have had the lock. If the lease ran out, that is when the
// hold ended. If Redis said that it has the lock no longer, it is when the last renewal was sent that succeeded, or
// earlier, or the zero time.
func (h *Hold) LostSince() time.Time {
	l := h.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	clock, end := l.manager.core.Clock, l.member.End()
	switch cause, _ := h.cause.(*endCause); { //nolint:errorlint // the hold's own cause, never wrapped
	case cause == nil || cause.detail != CauseGone:
		return clock.Time(h.limit)
	case h.fixed != 0 || l.ops != nil && end <= l.ops.until:
		return time.Time{} // the call that set this end may have asked for any lease
	}
	return clock.Time(end - l.leaseLocked()) // no renewal asks for more
}

// ErrDone is ErrNotHeld for a hold that was released because the context of its call was done.
var ErrDone = fmt.Errorf("%w: it was released when its context was done", errs.ErrNotHeld)

// Unlocker is a hold as the public packages show it. One of something other than a lock has a method Noun that names it.
type Unlocker interface {
	Context() context.Context
	Owner() string
	Unlock(ctx context.Context) error
}

// During runs fn under a hold's context and unlocks, also when fn panics. It returns fn's error, joined with why the hold was
// lost; kind and name are those of the lock. A release that Redis did not answer, or refused, is no error of fn's work: it is logged.
func During(ctx context.Context, h Unlocker, fn func(context.Context) error, kind, name string, logger *slog.Logger) (err error) {
	noun := lockNoun
	if other, is := h.(interface{ Noun() string }); is {
		noun = other.Noun()
	}
	defer func() {
		released := h.Unlock(ctx)
		cause := context.Cause(h.Context())
		switch {
		case errors.Is(released, errReleased):
			released = errs.Wrap(kinds.Package(kind), "do", name, errs.ErrClosed)
		case errors.Is(released, ErrDone): // fn may have gone on without the lock
			released = cause
			if errors.Is(err, cause) {
				released = nil
			}
		case released == nil || errors.Is(released, errs.ErrWrongType):
		case !errors.Is(released, errs.ErrNotHeld): // it was held: the loss in the context is that of an outer hold
			logger.Warn("redlatch: a "+noun+" was not released", "kind", kind, "name", name, "owner", h.Owner(), "cause", released)
			released = nil
		case errors.Is(cause, errs.ErrLost) && !errors.Is(context.Cause(ctx), cause): // its own
			released = cause
		default: // nobody else can have unlocked it: Redis had lost it already
			released = errs.Wrap(kinds.Package(kind), "do", name, errs.Of(noun, errs.ErrLost))
		}
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	return fn(h.Context())
}
