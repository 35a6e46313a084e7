package lease

import (
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// UnlockAll ends levels as Unlock does, and sends the releases of one client in one pipeline.
//
// report gets the position of the level and nil once Redis has confirmed the release, be it after an outcome that was not known at first;
// ErrNotHeld or another error that is certain; and it may never be called when Redis is not reached again. The result has the positions of
// levels that have to wait for other operations of their lease. UnlockAll has done nothing for these: Unlock does.
func UnlockAll(holds []*Hold, report func(i int, err error)) (waiting []int) {
	var out pipeline.Outbox
	for i, h := range holds {
		done := func(err error) { report(i, err) }
		switch h.beginUnlock(done) {
		case unlockWaits:
			waiting = append(waiting, i)
		case unlockSends:
			l := h.lease
			out.Add(l.manager.core.Batch, l.manager.kind.Release(l.key, l.owner), func(c *script.Call) { l.releaseAnswered(c, done) }, func() {
				l.endRelease(-1)
				done(errs.ErrClosed)
			})
		case unlockEnded:
		}
	}
	out.Send(pipeline.Urgent)
	return waiting
}

// Settle has the kind's Release repeated in the background after Redis has refused the release of a hold, unless other levels are left.
func (h *Hold) Settle() {
	l := h.lease
	l.mu.Lock()
	over := l.state != holding
	if over {
		l.releasePlainlyLocked()
	}
	l.mu.Unlock()
	if over {
		l.SettleRelease(nil)
	}
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
	l := h.lease
	guard := l.manager.listener.Guard(l)
	guard.Lock()
	l.mu.Lock()
	over, why := h.over, h.notHeldLocked()
	now := l.now()
	if over || h.lateLocked(now) || l.levels != h || h.next != nil || l.member.Renewing() != nil || l.ops.busy() {
		l.mu.Unlock()
		guard.Unlock()
		if !over {
			return unlockWaits
		}
		done(why)
		return unlockEnded
	}
	l.unlinkLocked(h)
	handedOff := l.handOffLocked(h, now)
	cancel := h.endUnlockedLocked(now)
	if handedOff == nil {
		l.beginReleaseLocked()
	}
	l.mu.Unlock()
	guard.Unlock()
	if cancel != nil {
		cancel()
	}
	if handedOff == nil {
		return unlockSends
	}
	handedOff()
	l.notifyReleased()
	done(nil)
	return unlockEnded
}

// releaseAnswered takes the answer to the release of a lease whose last level has ended.
func (l *Lease) releaseAnswered(c *script.Call, done func(error)) {
	notified, err := l.manager.Receivers(c)
	// A release repeated after an unknown outcome counts "not held" as released.
	open, result := l.concludeRelease(notified, err, func() { done(nil) })
	if !open {
		done(result)
	}
}
