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
	l.leaveLocked()
	x := &extension{hold: h, turn: turn, sent: l.now(), length: d, done: done}
	x.timer.Task = x
	x.cover = h.coverLocked(x.sent, d)
	h.shortenLocked(x.sent, d)
	call := l.keepLocked(x.sent, x.cover)
	l.mu.Unlock()
	l.space.core.Timers.Set(&x.timer, x.sent+shareOf(d))
	if !l.space.core.Batch.Start(call, pipeline.Urgent, x.answer) && x.first() {
		done(errs.ErrClosed)
	}
}

// errTurn is the error of an extension that would have to wait for another operation of the same owner.
var errTurn = fmt.Errorf("%w: another operation is under way", errs.ErrUnknown)

// extension is a call under way that sets the lease of one level anew.
type extension struct {
	timer  timer.Timer
	hold   *Hold
	turn   *turn
	sent   time.Duration
	length time.Duration // of the level
	cover  time.Duration // of the lease
	done   func(error)
	over   atomic.Bool // answered, or not waited for any more
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

// Due gives up waiting for the answer.
func (x *extension) Due(time.Duration) {
	if x.first() {
		x.done(errNoAnswer)
	}
}

func (x *extension) answer(c *script.Call) {
	kept, err := c.Int()
	x.hold.lease.answered(err)
	x.hold.lease.space.tellRenewed(1, 1-int(kept), err)
	inTime := x.first()
	switch {
	case err != nil:
		err = unknown(err)
	case kept == 0:
		x.hold.lease.gone()
		err = errs.ErrLost
	case inTime:
		err = x.hold.extended(x.sent, x.length, x.cover)
	default:
		x.hold.extendedLate(x.sent, x.length, x.cover)
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
	h.fixed = sent + d
	l.keptLocked(max(l.end, sent+length))
}
