package lease

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
)

// This file has what sets the levels and the lease of a lock that is held.

// keptLocked notes until when Redis keeps the lease.
func (l *Lease) keptLocked(end time.Duration) {
	l.leaveLocked()
	l.end = end
	l.armLocked()
}

// keep sets levels and lease in Redis, again after each error until ctx is done: it sets, so it may run twice. It
// returns false if the owner does not hold the lock, and when the call that answered was sent.
func (l *Lease) keep(ctx context.Context, levels int, length time.Duration) (kept bool, sent time.Duration, err error) {
	s := l.space
	l.mu.Lock()
	most := l.mostLocked(l.now())
	l.mu.Unlock()
	deadline := l.now() + s.engine.Lease
	for try := 0; ; try++ {
		l.mu.Lock()
		sent = l.now()
		l.shortenLocked(sent + length)
		l.mu.Unlock()
		call := s.kind.Keep(l.key, l.owner, levels, length, most)
		err = s.engine.Batch.Do(ctx, call, urgent(s.renewalLimit()))
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
		l.space.engine.Batch.Start(call, batch.Urgent, func(c *script.Call) {
			n, err := c.Int()
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
// the lock go as soon as that, whether or not the call is answered.
func (l *Lease) shortenLocked(end time.Duration) {
	l.leaveLocked()
	if end < l.end {
		l.end = end
		l.armLocked()
	}
}
