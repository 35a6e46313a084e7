package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/keepalive"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// This file has what sets the levels and the lease of a lock that is held.

// keptLocked notes until when Redis keeps the lease.
func (l *Lease) keptLocked(end time.Duration) {
	l.member.Leave()
	l.member.SetEnd(end)
	l.ArmLocked()
}

// errGivenUp is the error of a call for a lease that was released, lost or closed before the call was sent.
var errGivenUp = errors.New("the lease was given up")

// setting is what a call sets of a lock that is held.
type setting struct {
	levels Levels
	length time.Duration // of the lease
	most   time.Duration // what may be left of the lease before; see [Kind]
}

// settingLocked returns what to set now.
//
// A call that got no reply may arrive after this one, and would undo it. But it changes nothing if more is left of the lease than its
// most. So while such a call may arrive, this one makes the lease longer than that.
func (l *Lease) settingLocked(now time.Duration, levels Levels, length time.Duration) setting {
	if l.ops.open(now) {
		length = max(length, l.ops.outlast-now)
	}
	// A second for what the last answer took, which Redis has longer than is known here.
	return setting{levels, length, max(l.member.End()-now, 0) + time.Second}
}

// sendableLocked prepares the lease for the call and returns it, to be sent at once. Its reply is to be passed to answered.
func (l *Lease) sendableLocked(sent time.Duration, set setting) *script.Call {
	l.shortenLocked(sent + set.length)
	l.reads = l.reads && set.levels.Read > 0
	return l.manager.kind.Keep(l.key, l.owner, set.levels, set.length, set.most)
}

// keep sets levels and lease in Redis, again after each error until ctx is done: it sets, so it may run twice. It
// returns false if the owner does not hold the lock, and when the call that answered was sent. Nothing is sent for a lease
// that was given up here: then the error is that of the last attempt, [errGivenUp] without one.
func (l *Lease) keep(ctx context.Context, levels Levels, length time.Duration) (kept bool, sent time.Duration, err error) {
	c := l.manager.core
	l.mu.Lock()
	set := l.settingLocked(l.now(), levels, length)
	l.mu.Unlock()
	deadline := l.now() + c.Lease
	var lost error // of the first attempt that may have run: it says more than those after it
	for try := 0; ; try++ {
		l.mu.Lock()
		if l.state != holding { // its owner id may be free before this call has arrived
			l.mu.Unlock()
			if err == nil {
				return false, sent, errGivenUp
			}
			return false, sent, core.Judged(cmp.Or(lost, err))
		}
		sent = l.now()
		call := l.sendableLocked(sent, set)
		l.mu.Unlock()
		reply := int64(0)
		err = c.Batch.Do(ctx, call, urgent(keepalive.Limit(c.Lease)))
		if err == nil {
			reply, err = call.Int()
		}
		if script.Judge(err) == script.Unknown && lost == nil {
			lost = err
		}
		switch outcome := l.answered(set, sent, reply, err); {
		case outcome == keptAsSet:
			l.mu.Lock()
			l.keptLocked(sent + set.length)
			l.mu.Unlock()
			l.shared(set.levels)
			return true, sent, nil
		case outcome == keptNot:
			return false, sent, nil
		case outcome == keptLonger:
			l.mu.Lock()
			set.most = l.settingLocked(l.now(), levels, length).most
			l.mu.Unlock()
			continue
		case ctx.Err() == nil && (l.now() > deadline && !script.Parted(err) || script.Final(err)):
			return false, sent, core.Judged(cmp.Or(lost, err))
		case core.Pause(ctx, try) != nil:
			why := cmp.Or(lost, err)
			return false, sent, core.Conclude(ctx, script.Judge(why), why)
		}
	}
}

// recountLocked begins an operation that sets the number of levels in Redis, and notices whether the lease is still there. It returns
// the function that sends it; nil if another operation of this lease is in flight, which will notice. replied, if it is not nil, is
// called with whether Redis has answered.
func (l *Lease) recountLocked(replied func(bool)) func() {
	ops := l.ops
	if ops == nil {
		return nil
	}
	select {
	case ops.token <- struct{}{}:
	default:
		return nil
	}
	sent := l.now()
	set := l.settingLocked(sent, l.countLocked(), l.longestLocked(sent))
	call := l.sendableLocked(sent, set)
	return func() {
		l.manager.core.Batch.Start(call, pipeline.Urgent, func(c *script.Call) {
			n, err := c.Int()
			outcome := l.answered(set, sent, n, err)
			ops.done()
			switch outcome {
			case keptNot:
				l.Gone()
			case keptAsSet:
				l.shared(set.levels)
			}
			if replied != nil {
				replied(outcome == keptAsSet || outcome == keptNot)
			}
		})
	}
}

// levelsPause is the longest pause between two attempts to set the number of levels.
const levelsPause = 5 * time.Second

// settleLevels sets the number of levels in Redis, in the background and again until it has answered: a level whose call had no answer
// may be counted there, for as long as the lease is held.
func (l *Lease) settleLevels() {
	attempt := func(report func(settled bool)) {
		l.mu.Lock()
		if l.state != holding || l.levels == nil || l.ops == nil {
			l.mu.Unlock()
			report(true)
			return
		}
		ask := l.recountLocked(report)
		l.mu.Unlock()
		if ask == nil {
			report(false) // another operation is in flight
			return
		}
		ask()
	}
	l.manager.core.Settler.AddWithin(attempt, nil, keepalive.Never, levelsPause)
}

// shortenLocked prepares for a call that sets a lease which may end sooner than the present one: from when it is sent Redis may let
// the lock go as soon as that, whether or not the call is answered. Its reply is to be passed to answered.
func (l *Lease) shortenLocked(end time.Duration) {
	l.member.Leave()
	before := l.member.End()
	l.ops.until = max(l.ops.until, before, end)
	if end < before {
		l.member.SetEnd(end)
		l.ArmLocked()
	}
}

// keepResult is what came of a call that sets levels and lease.
type keepResult uint8

const (
	keptUnknown keepResult = iota // an error
	keptNot                       // the owner does not hold the lock
	keptAsSet
	keptLonger // nothing was changed: more of the lease is left than the call knew of
)

// answered takes the answer to a call that sets levels and lease. Without one the call may arrive yet.
func (l *Lease) answered(set setting, sent time.Duration, reply int64, err error) keepResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case script.Judge(err) == script.Unknown:
		l.ops.unanswered(l.now(), set)
		return keptUnknown
	case err != nil:
		return keptUnknown
	case reply == 0:
		return keptNot
	case reply == 1:
		l.reads = set.levels.Read > 0
		return keptAsSet
	}
	if end := sent + time.Duration(reply)*time.Millisecond; end > l.member.End() {
		l.keptLocked(end)
	}
	return keptLonger
}

// open reports whether a call that got no reply may still arrive.
func (o *operations) open(now time.Duration) bool { return now < o.strays }

// unanswered notes that a call may arrive for some time.
func (o *operations) unanswered(now time.Duration, set setting) {
	o.strays = now + settle.Straggler
	o.outlast = max(o.outlast, o.strays+set.most)
}

// noteDowngrade is called after a level of writing has ended. With the last of them other readers may join.
func (l *Lease) noteDowngrade() {
	guard := l.manager.listener.Guard(l)
	guard.Lock()
	defer guard.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.downgradeLocked()
}

// downgradeLocked is noteDowngrade for a caller that holds the guard and the lease's mu.
func (l *Lease) downgradeLocked() {
	if !l.exclusiveLocked() && l.levels != nil {
		l.manager.listener.Downgraded(l)
	}
}

// shared reports that Redis has these levels, if none of them is of writing.
func (l *Lease) shared(levels Levels) {
	if levels.Write == 0 {
		l.manager.listener.Shared(l)
	}
}
