package lease

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// This file serves locks that are made of others: one call of theirs attempts or releases several locks at the same time. What came
// of it is reported later, on a goroutine that must not be held up, or before the function returns.

// AttemptAll sends an attempt for each of the names, those of one client in one pipeline. An attempt neither nests nor waits. The
// options must be valid.
//
// report gets the position of the name and the hold, or an error: ErrNotAcquired if the lock is taken. What an error leaves unknown is
// being settled. A client that closes meanwhile may never report. The result is nil for what was not sent.
func AttemptAll(ctx context.Context, names []*Name, o *Options, report func(i int, h *Hold, err error)) []*Attempt {
	attempts := make([]*Attempt, len(names))
	var out outbox
	for i, n := range names {
		a, err := n.prepare(ctx, o)
		if err != nil {
			report(i, nil, err)
			continue
		}
		a.report = func(h *Hold, err error) { report(i, h, err) }
		attempts[i] = a
		out.add(n.manager.core.Batch, a.call, a.answered, a.refused)
	}
	out.send(pipeline.Normal)
	return attempts
}

// Attempt is a call in flight that acquires one lock.
type Attempt struct {
	name         *Name
	ctx          context.Context //nolint:containedctx // the hold's, if it is granted
	lease        *Lease
	sent, length time.Duration
	call         *script.Call
	report       func(*Hold, error)
	abandoned    *settle.Abandoned // what becomes of it if it is given up

	mu   sync.Mutex  // guards the rest
	over bool        // answered or given up
	stop func() bool // has Close not give it up any more
}

// prepare makes an attempt that is to be sent.
func (n *Name) prepare(ctx context.Context, o *Options) (*Attempt, error) {
	s := n.manager
	switch {
	case n.Check() != nil:
		return nil, n.Check()
	case s.core.Closed():
		return nil, errs.ErrClosed
	case n.TakenHere():
		return nil, errs.ErrNotAcquired
	case !s.core.Admit():
		return nil, errs.ErrClosed
	}
	owner := s.newOwner(o, nil)
	l := s.newLease(n.key, owner)
	a := &Attempt{name: n, ctx: ctx, lease: l, sent: s.core.Clock.Now()}
	a.length = l.register(ctx, o, a.sent)
	a.abandoned = l.abandoned(a.length)
	a.call = s.kind.Acquire(Ask{Key: n.key, Owner: owner, Lease: a.length, Verify: true})
	a.mu.Lock()
	a.stop = s.core.Batch.AfterWaits(a.GiveUp)
	a.mu.Unlock()
	return a, nil
}

// GiveUp has the lock released that the attempt may acquire: its answer may be long in coming, and is not reported any more. It does
// nothing once the answer has come. A nil attempt is one that was not sent.
func (a *Attempt) GiveUp() {
	if a == nil {
		return
	}
	e := a.lease.manager.core
	e.Begin() // until the settler has it, also if the answer comes meanwhile
	defer e.End()
	if !a.end() {
		return
	}
	a.lease.unregister()
	a.abandoned.TakeBack()
}

// end reports whether it was the first to end the attempt.
func (a *Attempt) end() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.over
	if first {
		a.over = true
		a.stop()
	}
	return first
}

// refused ends an attempt that was not sent.
func (a *Attempt) refused() {
	l := a.lease
	a.end()
	l.manager.core.End()
	l.unregister()
	a.report(nil, errs.ErrClosed)
}

// answered takes the answer, and settles what was given up.
func (a *Attempt) answered(c *script.Call) {
	defer a.lease.manager.core.End()
	if !a.end() {
		a.abandoned.Late(c)
		return
	}
	a.report(a.result(c))
}

// result makes a hold of a yes, and settles what is not known.
func (a *Attempt) result(c *script.Call) (*Hold, error) {
	l, s := a.lease, a.lease.manager
	reply, err := Reply{}, c.Err()
	if err == nil {
		reply, err = s.kind.Acquired(c)
	}
	if err != nil {
		l.unregister()
		return nil, unknown(failed(err, a.abandoned.TakeBack).err)
	}
	if !reply.Granted {
		l.unregister()
		return nil, errs.ErrNotAcquired
	}
	t := a.name.accept(a.ctx, nil, l, grant{sent: a.sent, reply: reply})
	if f := s.core.Hooks.Acquired; f != nil && t.err == nil {
		f(s.kind.Title, l.user(), l.since-a.sent)
	}
	return t.hold, t.err
}

// UnlockAll ends levels as Unlock does, and sends the releases of one client in one pipeline.
//
// report gets the position of the level and nil once Redis has confirmed the release, be it after an outcome that was not known at first;
// ErrNotHeld or another error that is certain; and it may never be called when Redis is not reached again. The result has the positions of
// levels that have to wait for other operations of their lease. UnlockAll has done nothing for these: Unlock does.
func UnlockAll(holds []*Hold, report func(i int, err error)) (waiting []int) {
	var out outbox
	for i, h := range holds {
		done := func(err error) { report(i, err) }
		switch h.beginUnlock(done) {
		case unlockWaits:
			waiting = append(waiting, i)
		case unlockSends:
			l := h.lease
			out.add(l.manager.core.Batch, l.manager.kind.Release(l.key, l.owner), func(c *script.Call) { l.releaseAnswered(c, done) }, func() {
				l.released(-1)
				done(errs.ErrClosed)
			})
		case unlockEnded:
		}
	}
	out.send(pipeline.Urgent)
	return waiting
}

// unlockStep is what is left to do for an Unlock that does not wait.
type unlockStep uint8

const (
	unlockEnded unlockStep = iota // nothing: it was reported
	unlockSends                   // to send the release
	unlockWaits                   // all of it, after another operation of the lease
)

// beginUnlock ends the level on this side.
func (h *Hold) beginUnlock(done func(error)) unlockStep {
	l, s := h.lease, h.lease.manager
	sh := s.shard(l.name())
	sh.mu.Lock()
	l.mu.Lock()
	over, why := h.over, h.notHeldLocked()
	if over || l.levels != h || h.next != nil || l.member.Renewing() != nil || l.ops.busy() {
		l.mu.Unlock()
		sh.mu.Unlock()
		if !over {
			return unlockWaits
		}
		done(why)
		return unlockEnded
	}
	l.unlinkLocked(h)
	now := l.now()
	next, left := l.handOffLocked(sh, h, now)
	cancel := h.endUnlockedLocked(now)
	if next == nil {
		l.beginReleaseLocked(sh)
	}
	l.mu.Unlock()
	sh.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if next == nil {
		return unlockSends
	}
	next.queue.left(left)
	l.notifyReleased()
	done(nil)
	return unlockEnded
}

// releaseAnswered takes the answer to the release of a lease whose last level has ended.
func (l *Lease) releaseAnswered(c *script.Call, done func(error)) {
	s := l.manager
	notified, err := s.receivers(c)
	open := err != nil && (script.Judge(err) != script.NotDone || script.Transient(err))
	if open {
		// A release repeated after an unknown outcome counts "not held" as released.
		l.settleRelease(func() { done(nil) })
	}
	l.released(int(notified) - 1)
	if err == nil && notified == 0 {
		l.notifyLost(causeGone)
		done(errs.ErrNotHeld)
		return
	}
	l.notifyReleased()
	if !open {
		done(core.Explain(err))
	}
}

// outbox collects calls that are sent at the same time: those of one client share pipelines.
type outbox map[*pipeline.Batcher]*batch

type batch struct {
	calls   []pipeline.Sending
	refused []func() // what to do for each call if the client has closed
}

func (o *outbox) add(to *pipeline.Batcher, call *script.Call, done func(*script.Call), refused func()) {
	if *o == nil {
		*o = outbox{}
	}
	mine := (*o)[to]
	if mine == nil {
		mine = &batch{}
		(*o)[to] = mine
	}
	mine.calls, mine.refused = append(mine.calls, pipeline.Sending{Call: call, Done: done}), append(mine.refused, refused)
}

func (o outbox) send(class pipeline.Class) {
	for to, mine := range o {
		if to.StartAll(class, mine.calls) {
			continue
		}
		for _, refused := range mine.refused {
			refused()
		}
	}
}

// Member is embedded in this module's kinds of lock, by an alias with a small letter: it gives them the unexported method of
// rlock.Locker, and names the lock for a multi-lock.
type Member struct {
	name *Name // nil for a lock that is made of others
}

// MemberOf returns what a lock of the given name embeds.
func MemberOf(n *Name) Member { return Member{n} }

func (m Member) member() *Name { return m.name }

// Locker is the part of rlock.Locker that only this module's locks have.
type Locker interface{ member() *Name }

// NameOf returns the name of a lock; nil if it is made of others, or of nothing.
func NameOf(l Locker) *Name { return l.member() }

// Find returns the hold if the search of a context for a lock's hold ends at it, else nil.
func (h *Hold) Find(key any) any {
	if h.Answers(key) {
		return h
	}
	return nil
}

// Recheck asks Redis soon whether the lease is still there.
func (h *Hold) Recheck() { h.lease.recheck() }

// LostSince returns, of a lost hold, from when on others may have had the lock. If the lease ran out, that is when the
// hold ended. If Redis said that it has the lock no longer, it is when the last renewal was sent that succeeded, or
// earlier, or the zero time.
func (h *Hold) LostSince() time.Time {
	l := h.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	clock, end := l.manager.core.Clock, l.member.End()
	switch cause, _ := h.cause.(*endCause); { //nolint:errorlint // the hold's own cause, never wrapped
	case cause == nil || cause.detail != causeGone:
		return clock.Time(h.limit)
	case h.fixed != 0 || l.ops != nil && end <= l.ops.until:
		return time.Time{} // the call that set this end may have asked for any lease
	}
	return clock.Time(end - l.manager.core.Lease) // no renewal asks for more
}
