package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// This file has what sets the levels and the lease of a lock that is held.

// keptLocked notes until when Redis keeps the lease.
func (l *Lease) keptLocked(end time.Duration) {
	l.leaveLocked()
	l.end = end
	l.armLocked()
}

// errGivenUp is the error of a call for a lease that was released, lost or closed before the call was sent.
var errGivenUp = errors.New("the lease was given up")

// keep sets levels and lease in Redis, again after each error until ctx is done: it sets, so it may run twice. It
// returns false if the owner does not hold the lock, and when the call that answered was sent. Nothing is sent for a lease
// that was given up here: then the error is that of the last try, [errGivenUp] without one.
func (l *Lease) keep(ctx context.Context, levels int, length time.Duration) (kept bool, sent time.Duration, err error) {
	s := l.space
	l.mu.Lock()
	most := l.mostLocked(l.now())
	l.mu.Unlock()
	deadline := l.now() + s.core.Lease
	for try := 0; ; try++ {
		l.mu.Lock()
		if l.state != holding { // its owner id may be free before this call has arrived
			l.mu.Unlock()
			if err == nil {
				return false, sent, errGivenUp
			}
			return false, sent, unknown(err)
		}
		sent = l.now()
		l.shortenLocked(sent + length)
		l.mu.Unlock()
		call := s.kind.Keep(l.key, l.owner, levels, length, most)
		err = s.core.Batch.Do(ctx, call, urgent(s.renewalLimit()))
		l.answered(err)
		if err == nil {
			n, err := call.Int()
			return n > 0, sent, err
		}
		if ctx.Err() != nil {
			return false, sent, ctx.Err()
		}
		if l.now() > deadline || script.Judge(err) == script.NotDone && !script.Transient(err) {
			return false, sent, unknown(err)
		}
		if err := pause(ctx, try); err != nil {
			return false, sent, err
		}
	}
}

// keepLocked returns the one call that sets the lease, to be sent at once: it is not repeated.
func (l *Lease) keepLocked(now, length time.Duration) *script.Call {
	most := l.mostLocked(now)
	l.shortenLocked(now + length)
	return l.space.kind.Keep(l.key, l.owner, l.countLocked(), length, most)
}

// recountLocked returns a function that tells Redis how many levels are left, and hears whether it still has the lease;
// nil if another operation of this lease is under way, which will.
func (l *Lease) recountLocked() func() {
	turn := l.turn
	if turn == nil {
		return nil
	}
	select {
	case turn.token <- struct{}{}:
	default:
		return nil
	}
	now := l.now()
	call := l.keepLocked(now, l.longestLocked(now))
	return func() {
		l.space.core.Batch.Start(call, pipeline.Urgent, func(c *script.Call) {
			n, err := c.Int()
			l.answered(err)
			turn.give()
			if err == nil && n == 0 {
				l.gone()
			}
		})
	}
}

// mostLocked bounds what Redis has left of the lease: more than is known here by as much as the last answer took. A call that sets a lease
// carries it. Given up and repeated, it may run long after a newer one, whose lease it must not shorten.
func (l *Lease) mostLocked(now time.Duration) time.Duration {
	return max(l.untilLocked()-now, 0) + time.Second
}

// shortenLocked prepares for a call that sets a lease which may end sooner than the present one: from when it is sent Redis may let
// the lock go as soon as that, whether or not the call is answered. What came of the call is to be told to answered.
func (l *Lease) shortenLocked(end time.Duration) {
	l.leaveLocked()
	l.turn.keeps.Add(1)
	until := max(time.Duration(l.turn.until.Load()), l.end, end)
	l.turn.until.Store(int64(until))
	if end < l.end {
		l.end = end
		l.armLocked()
	}
}

// answered takes the error of a call that sets a lease. Without an answer the call may arrive yet, and would set the lease of the next
// hold of the same owner id.
func (l *Lease) answered(err error) {
	l.mu.Lock()
	turn := l.turn
	l.mu.Unlock()
	if script.Judge(err) == script.Unknown {
		turn.stray.Store(int64(l.now() + straggler))
	}
	turn.keeps.Add(-1)
}

// strays returns until when a call that sets a lease may arrive; 0 if none can.
func (l *Lease) strays() time.Duration {
	l.mu.Lock()
	turn := l.turn
	l.mu.Unlock()
	if turn == nil {
		return 0
	}
	now := l.now()
	if turn.keeps.Load() > 0 { // no answer is waited for any longer than a release may take
		return now + unlockLimit + straggler
	}
	if until := time.Duration(turn.stray.Load()); until > now {
		return until
	}
	return 0
}

// releaseUntil returns how long to go on with a release that is not answered: as long as Redis may have the lease, which it
// began to count when a call arrived.
func (l *Lease) releaseUntil() time.Duration {
	l.mu.Lock()
	until, turn := l.untilLocked(), l.turn
	l.mu.Unlock()
	if turn != nil {
		until = max(until, time.Duration(turn.until.Load()))
	}
	return max(l.now()+l.space.core.Lease, until+straggler)
}

// freeOwner lets the owner id be used again, once nothing that was sent under it can arrive any more. repeated says that a
// release may.
func (l *Lease) freeOwner(repeated bool) {
	s, until := l.space, l.strays()
	if repeated {
		until = max(until, l.now()+straggler)
	}
	if until == 0 {
		s.unreserve(l.key, l.owner)
		return
	}
	s.freeAfter(until, l.key, l.owner, func() { s.unreserve(l.key, l.owner) })
}
