package lease

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Passer is a Kind that can give a lock from one owner to another in one step.
type Passer interface {
	Kind
	// Pass gives the lock to another owner for a lease of its own, and tells nobody. Its reply is 0 if the first owner
	// does not hold the lock.
	Pass(key, from, to any, lease time.Duration) *script.Call
}

// heirLocked returns the waiter of this client to whom the lock passes in Redis: for the rest of this client's turn a
// release would only have the others ask in vain.
func (l *Lease) heirLocked(sh *shard, h *Hold) *waiter {
	line := sh.lines[l.name()]
	if l.space.passer == nil || line == nil || line.turnAt == 0 || !l.givableLocked(line, h) {
		return nil
	}
	if l.now()-line.turnAt >= l.space.turn() {
		return nil
	}
	line.head.passing = true
	return line.head
}

// pass releases the lock by giving it to a waiter of this client.
func (l *Lease) pass(ctx context.Context, limit time.Duration, w *waiter) error {
	s := l.space
	sent := l.now()
	to := s.newLease(l.key, s.core.NextOwner())
	length := to.register(w.ctx, w.options, sent)
	call := s.passer.Pass(l.key, l.owner, to.owner, length)
	err := s.core.Batch.Do(context.WithoutCancel(ctx), call, urgent(limit))
	passed := int64(0)
	if err == nil {
		passed, err = call.Int()
	}
	switch {
	case err != nil:
		to.unregister()
		if script.Judge(err) != script.NotDone {
			s.settleRelease(unsettled{key: l.key, owner: to.owner, until: l.now() + length + straggler})
		}
		w.passedBy()
		return l.release(ctx, max(limit-(l.now()-sent), 10*time.Millisecond), script.Judge(err) != script.NotDone)
	case passed == 0:
		to.unregister()
		freed := l.in(yielded)
		l.released(0)
		w.passedBy()
		if !freed {
			l.tellLost(lostInRedis)
			return errs.ErrNotHeld
		}
		l.tellReleased()
		return nil
	}
	l.tellReleased()
	to.inherit(l, w)
	return nil
}

// passedBy has a waiter, to whom the lock was not passed after all, ask for itself.
func (w *waiter) passedBy() {
	w.line.shard.mu.Lock()
	w.passing = false
	w.line.resumeLocked(w.space.core.Clock.Now())
	w.line.shard.mu.Unlock()
}

// inherit makes a lease of what Redis has passed on, and gives it to the waiter.
func (l *Lease) inherit(from *Lease, w *waiter) {
	s := l.space
	l.since = l.now()
	l.mu.Lock()
	hold := l.levels
	l.mu.Unlock()
	from.mu.Lock()
	from.state = over
	from.mu.Unlock()

	sh := s.shard(l.name())
	sh.mu.Lock()
	l.begin() // not before it is known, or its end could come first and leave it known for good
	s.addLocked(sh, l)
	s.removeLocked(sh, from)
	defer s.core.End() // of the release of the lease before, which has become a pass
	gone := !w.standsLocked() || s.core.Closed()
	w.passing = false
	if !gone {
		w.hold = hold
		w.signalLocked()
		left := w.leaveLocked()
		sh.mu.Unlock()
		w.line.left(left)
		return
	}
	sh.mu.Unlock()
	hold.pass()
}
