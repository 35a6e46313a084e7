package lease

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// BeginExtend renews a level of fixed lease: it sets the lease anew, to d from now. done gets nil, ErrLost when the lock is gone,
// ErrNotHeld after Unlock, and another error when the outcome is not known: so that several tries fit into the lease it is not waited
// for longer than a tenth of d, though an answer that comes later counts. It may never be called once the client has closed.
func (h *Hold) BeginExtend(d time.Duration, done func(error)) {
	l := h.lease
	l.mu.Lock()
	turn, err := l.turnLocked(), h.overLocked()
	if err == nil {
		select {
		case turn.token <- struct{}{}:
		default:
			err = errTurn
		}
	}
	if err != nil {
		l.mu.Unlock()
		done(err)
		return
	}
	x := &extension{hold: h, turn: turn, length: d, done: done}
	x.timer.Task = x
	call := x.callLocked()
	l.mu.Unlock()
	l.space.core.Timers.Set(&x.timer, x.sent+shareOf(d))
	x.start(call)
}

// errTurn is the error of an extension that would have to wait for another operation of the same owner.
var errTurn = fmt.Errorf("%w: another operation is under way", errs.ErrUnknown)

// extension is a call under way that sets the lease of one level anew.
type extension struct {
	timer  timer.Timer
	hold   *Hold
	turn   *turn
	length time.Duration // of the level
	done   func(error)
	over   atomic.Bool // answered, or not waited for any more

	sent time.Duration
	set  setting
}

// callLocked returns the call, to be sent at once.
func (x *extension) callLocked() *script.Call {
	l := x.hold.lease
	x.sent = l.now()
	x.set = l.settingLocked(x.sent, l.countLocked(), x.hold.coverLocked(x.sent, x.length))
	x.hold.shortenLocked(x.sent, x.length)
	return l.callLocked(x.sent, x.set)
}

func (x *extension) start(call *script.Call) {
	if !x.hold.lease.space.core.Batch.Start(call, pipeline.Urgent, x.answer) && x.first() {
		x.done(errs.ErrClosed)
	}
}

// first reports whether the extension ends now: then the next one may be sent.
func (x *extension) first() bool {
	if x.over.Swap(true) {
		return false
	}
	x.hold.lease.space.core.Timers.Stop(&x.timer)
	x.turn.give()
	return true
}

// Due gives up waiting for the answer. Another call may be sent from here on, and arrive before this one.
func (x *extension) Due(now time.Duration) {
	x.turn.unanswered(now, x.set)
	if x.first() {
		x.done(errNoAnswer)
	}
}

func (x *extension) answer(c *script.Call) {
	h, l := x.hold, x.hold.lease
	reply, err := c.Int()
	outcome := l.answered(x.set, x.sent, reply, err)
	if outcome == keptLonger && !x.over.Load() {
		l.mu.Lock()
		call := x.callLocked()
		l.mu.Unlock()
		x.start(call)
		return
	}
	l.space.tellRenewed(1, 1-int(min(reply, 1)), err)
	inTime := x.first()
	switch {
	case err != nil:
		err = unknown(err)
	case outcome == keptNot:
		l.gone()
		err = errs.ErrLost
	case outcome == keptLonger: // a newer call has set it
	case inTime:
		l.mu.Lock()
		l.keptLocked(x.sent + x.set.length)
		l.mu.Unlock()
		err = h.extended(x.sent, x.length)
	default:
		h.extendedLate(x.sent, x.length, x.set.length)
	}
	if inTime {
		x.done(err)
	}
}

// extendedLate takes a yes that comes when a newer call may have been sent. It counts unless that one asked for another lease.
func (h *Hold) extendedLate(sent, d, length time.Duration) {
	l := h.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.over || h.length != d || sent+d <= h.fixed {
		return
	}
	h.fixLocked(sent+d, d)
	l.keptLocked(max(l.end, sent+length))
}
