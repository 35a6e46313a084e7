package lease

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// This file has the doors for locks that are made of others: one call of theirs takes, keeps or frees several leases at
// the same time. Each door sends and returns at once; what came of it is told later, on a goroutine that must not be held up,
// or before the door returns.

// Begin sends one try, which never nests and never waits. The options must be valid. done gets the hold, or an error:
// ErrNotAcquired if the lock is taken. What an error leaves unknown is being settled. A client that is closed meanwhile
// may never tell. The result is nil if nothing was sent.
func (n *Name) Begin(ctx context.Context, o *Options, done func(*Hold, error)) *Try {
	s := n.space
	switch {
	case n.Check() != nil:
		done(nil, n.Check())
		return nil
	case s.core.Closed():
		done(nil, errs.ErrClosed)
		return nil
	case n.takenHere():
		done(nil, errs.ErrNotAcquired)
		return nil
	case !s.core.Admit():
		done(nil, errs.ErrClosed)
		return nil
	}
	owner := s.newOwner(o)
	l := s.newLease(n.key, owner)
	b := begun{name: n, lease: l, sent: s.core.Clock.Now()}
	b.length = l.register(ctx, o, b.sent)
	call := s.kind.Acquire(Ask{Key: n.key, Owner: owner, Lease: b.length, Verify: true})
	t := &Try{phantoms: []*phantom{{lease: l, length: b.length}}}
	answered := func(c *script.Call) {
		if t.answered(c) {
			done(b.answered(ctx, c))
		}
		s.core.End()
	}
	if !s.core.Batch.Start(call, pipeline.Normal, answered) {
		s.core.End()
		l.unregister()
		done(nil, errs.ErrClosed)
		return nil
	}
	return t
}

// Try is a script under way that acquires one lock, or several.
type Try struct {
	phantoms []*phantom // what becomes of it if it is given up

	mu   sync.Mutex // guards over
	over bool       // answered or given up
}

// GiveUp has what the try may acquire released from now on: its answer may be long in coming. Who began it is not told any
// more. It does nothing once the answer has come. A nil try is one that was not sent.
func (t *Try) GiveUp() {
	if t == nil {
		return
	}
	e := t.phantoms[0].lease.space.core
	e.Begin() // until the settler has it, also if the answer comes meanwhile
	defer e.End()
	if !t.end() {
		return
	}
	for _, p := range t.phantoms {
		p.lease.unregister()
		_ = p.failed(script.ErrNoAnswer) // nobody asks
	}
}

// answered reports whether the answer is still wanted. Else it settles what was given up.
func (t *Try) answered(c *script.Call) bool {
	if t.end() {
		return true
	}
	for _, p := range t.phantoms {
		p.Late(c)
	}
	return false
}

// end reports whether it was the first to end the try.
func (t *Try) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.over
	t.over = true
	return first
}

// begun is a try that was sent.
type begun struct {
	name         *Name
	lease        *Lease
	sent, length time.Duration
}

// answered makes a hold of a yes, and settles what is not known.
func (b begun) answered(ctx context.Context, c *script.Call) (*Hold, error) {
	l, s := b.lease, b.lease.space
	reply, err := Reply{}, c.Err()
	if err == nil {
		reply, err = s.kind.Acquired(c)
	}
	if err != nil {
		l.unregister()
		ghost := &phantom{lease: l, length: b.length}
		return nil, unknown(ghost.failed(err).err)
	}
	if !reply.Granted {
		l.unregister()
		return nil, errs.ErrNotAcquired
	}
	return b.granted(ctx, reply)
}

// granted makes a hold of a yes, unless it came too late.
func (b begun) granted(ctx context.Context, reply Reply) (*Hold, error) {
	l, s := b.lease, b.lease.space
	t := b.name.granted(ctx, nil, l, granted{sent: b.sent, reply: reply})
	if f := s.core.Hooks.Acquired; f != nil && t.err == nil {
		f(s.kind.Title(), l.user(), l.since-b.sent)
	}
	return t.hold, t.err
}

// BeginUnlock ends the level as Unlock does. done gets nil once Redis has confirmed it, be it after an outcome that was not
// known at first, and ErrNotHeld or another error that is certain; it may never be called when Redis is not reached again. It
// returns false, and has done nothing, if the level has to wait for others: Unlock does.
func (h *Hold) BeginUnlock(done func(error)) bool {
	l, s := h.lease, h.lease.space
	sh := s.shard(l.name())
	sh.mu.Lock()
	l.mu.Lock()
	over, why := h.over, h.notHeldLocked()
	if !over && (l.levels != h || h.next != nil || l.renewalLocked() != nil || l.turn.taken()) {
		l.mu.Unlock()
		sh.mu.Unlock()
		return false
	}
	if over {
		l.mu.Unlock()
		sh.mu.Unlock()
		done(why)
		return true
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
		l.beginRelease(done)
		return true
	}
	next.line.left(left)
	l.tellReleased()
	done(nil)
	return true
}

// beginRelease releases the lock in Redis after its last level has ended.
func (l *Lease) beginRelease(done func(error)) {
	s := l.space
	sent := s.core.Batch.Start(s.kind.Release(l.key, l.owner), pipeline.Urgent, func(c *script.Call) {
		heard, err := s.receivers(c)
		if err == nil && l.in(yielded) {
			heard = max(heard, 1)
		}
		open := err != nil && (script.Judge(err) != script.NotDone || script.Transient(err))
		if open {
			// A release repeated after an unknown outcome counts "not held" as released.
			s.settleRelease(unsettled{
				key: l.key, owner: l.owner, until: l.releaseUntil(),
				final: true, sent: script.Judge(err) == script.Unknown, told: func() { done(nil) }, ended: l.departed,
			})
		} else {
			l.departed(0)
		}
		l.released(int(heard) - 1)
		if err == nil && heard == 0 {
			l.tellLost(lostInRedis)
			done(errs.ErrNotHeld)
			return
		}
		l.tellReleased()
		if !open {
			done(core.Explain(err))
		}
	})
	if !sent {
		l.released(-1)
		done(errs.ErrClosed)
	}
}
