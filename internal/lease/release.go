package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	unlockLimit = 3 * time.Second        // an Unlock takes no longer
	unlockFloor = 100 * time.Millisecond // a deadline of ctx that is nearer than this is not heeded
)

// Unlock ends the level. With the last one the lock is handed to the next goroutine of this client if it may be, and
// otherwise released in Redis.
func (h *Hold) Unlock(ctx context.Context) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	if h == nil {
		return errs.ErrNotHeld
	}
	deadline, _ := ctx.Deadline() // not under a mutex: ctx may be made of this hold
	err := h.unlock(ctx, deadline)
	if !errors.Is(err, errs.ErrUnknown) {
		return err
	}
	ended := ctx.Err()
	if ended == nil && !deadline.IsZero() && !time.Now().Before(deadline) { // its own timer is about to fire
		ended = context.DeadlineExceeded
	}
	if ended != nil {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return err
}

func (h *Hold) unlock(ctx context.Context, deadline time.Time) error {
	l, s := h.lease, h.lease.manager
	sh := s.shard(l.name())
	sh.mu.Lock()
	l.mu.Lock()
	if h.over {
		err := h.notHeldLocked()
		l.mu.Unlock()
		sh.mu.Unlock()
		return err
	}
	l.unlinkLocked(h)
	if l.levels != nil {
		l.downgradeLocked(sh)
		sh.mu.Unlock()
		return l.unlockNested(ctx, h, deadline) // unlocks l.mu
	}
	now := l.now()
	next, left := l.handOffLocked(sh, h, now)
	if next == nil {
		l.beginReleaseLocked(sh)
	}
	cancel := h.endUnlockedLocked(now)
	wait, ops, limit := l.member.Renewing(), l.ops, l.boundLocked(deadline, now)
	l.mu.Unlock()
	sh.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if next != nil {
		next.queue.left(left)
		l.notifyReleased()
		return nil
	}
	if wait == nil && ops == nil {
		return l.release(ctx, limit)
	}
	until := l.now() + limit
	defer l.awaitEarlierCalls(wait, ops, limit)()
	return l.release(ctx, max(until-l.now(), 10*time.Millisecond))
}

// awaitEarlierCalls waits, for at most limit, until what was sent before for the lease has been answered: nothing is renewed
// after the release has begun, and no operation of a nested level overtakes it. The result ends the operation.
func (l *Lease) awaitEarlierCalls(renewal <-chan struct{}, ops *operations, limit time.Duration) func() {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	if renewal != nil {
		select {
		case <-renewal:
		case <-timer.C:
			return func() {}
		}
	}
	if ops != nil {
		select {
		case ops.token <- struct{}{}:
			return ops.done
		case <-timer.C:
		}
	}
	return func() {}
}

func (l *Lease) notifyReleased() {
	if f := l.manager.core.Hooks.Released; f != nil {
		f(l.manager.kind.Title, l.user(), l.now()-l.since)
	}
}

// endUnlockedLocked ends a level that its user unlocked. The cause is made only if somebody looks at the context.
func (h *Hold) endUnlockedLocked(now time.Duration) func() {
	h.markOverLocked(now)
	if h.cancel == nil {
		return nil
	}
	return h.endContextLocked(h.unlockedCause())
}

// beginReleaseLocked stops renewal, before the release is sent. Close waits until released.
func (l *Lease) beginReleaseLocked(sh *shard) {
	l.manager.core.Begin()
	l.state = releasing
	l.manager.core.Timers.Stop(&l.member.Timer)
	sh.setAsideLocked(l)
	if q := sh.queues[l.name()]; q != nil && !l.manager.kind.shared() {
		q.AskAt(l.now() + waitqueue.Recheck) // or the announcement, or the answer to the release
	}
}

// await waits for a channel that may be nil.
func await(ctx context.Context, c <-chan struct{}) error {
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handOffLocked gives the lease to the next waiter of this client, if both are plain, the client has not had the lock
// for longer than the budget, and the lease is fresh.
func (l *Lease) handOffLocked(sh *shard, h *Hold, now time.Duration) (*Waiter, *pubsub.Membership) {
	q := sh.queues[l.name()]
	if q == nil || now-l.since >= l.manager.core.HandoffBudget || l.member.End()-now <= l.manager.core.Lease/3 || !l.plainLocked(h) {
		return nil, nil
	}
	head := q.Head() // if its ctx is done it passes the hold on; to ask here could need another lease's mutex
	if head == nil {
		return nil, nil
	}
	w, _ := head.Call.(*Waiter)
	if w.manager != l.manager || !w.options.plain() || l.manager.core.Closed() {
		return nil, nil
	}
	w.hold = l.newHoldLocked(w.ctx, w.options, Write, now)
	w.Wake()
	return w, w.leaveLocked()
}

// plainLocked reports whether one level without limits of its own is all there is to the lease, and nothing is in flight.
func (l *Lease) plainLocked(h *Hold) bool {
	return !l.manager.kind.shared() && h.mode == Write && l.state == holding && l.member.Fresh() && !l.ops.busy() && l.token == 0 &&
		h.fixed == 0 && h.limit == 0
}

// unlockLimit returns how long a call may take that only Redis holds up.
func (s *Manager) unlockLimit() time.Duration { return min(unlockLimit, s.core.CallTimeout) }

// boundLocked returns how long an Unlock may take whose ctx has this deadline; the zero time is none.
func (l *Lease) boundLocked(deadline time.Time, now time.Duration) time.Duration {
	limit := l.manager.unlockLimit()
	if rest := l.member.End() - now; rest < limit {
		limit = max(rest, 10*time.Millisecond)
	}
	if deadline.IsZero() {
		return limit
	}
	if left := time.Until(deadline); left > 0 {
		limit = min(limit, max(left, unlockFloor))
	}
	return limit
}

// released is finish for a release that beginReleaseLocked began. What it left unknown is the settler's.
func (l *Lease) released(notified int) {
	l.finish(notified)
	l.manager.core.End()
}

// release releases the lock in Redis after its last level has ended.
func (l *Lease) release(ctx context.Context, limit time.Duration) error {
	s := l.manager
	notified, err := s.release(ctx, l.key, l.owner, limit)
	if err != nil && (script.Judge(err) != script.NotDone || script.Transient(err)) {
		l.settleRelease(nil)
		err = fmt.Errorf("%w: %w", errs.ErrUnknown, err)
	}
	l.released(int(notified) - 1)
	if err == nil && notified == 0 {
		l.notifyLost(causeGone)
		return errs.ErrNotHeld
	}
	l.notifyReleased()
	return core.Explain(err)
}

// release sends a release until it is answered or the limit is over, whatever becomes of ctx. A repeated one that finds nothing counts as done:
// the one before did it. It returns 0 if the owner did not hold the lock, else one more than the clients that were notified of
// it.
func (s *Manager) release(ctx context.Context, key, owner any, limit time.Duration) (notified int64, err error) {
	deadline := s.core.Clock.Now() + limit
	var lost error // of the first attempt that may have run: it says more than those after it
	for try, left := 0, limit; ; try++ {
		ask := urgent(max(left, time.Millisecond))
		ask.Usual, ask.Deaf = limit == unlockLimit && try == 0, true
		call := s.kind.Release(key, owner)
		err := s.core.Batch.Do(ctx, call, ask)
		if err == nil {
			n, err := s.receivers(call)
			if lost != nil {
				n = max(n, 1)
			}
			return n, err
		}
		judged := script.Judge(err)
		if judged == script.NotDone && !script.Transient(err) {
			return 0, cmp.Or(lost, err) // the first one may have run; the settler goes on
		}
		if judged == script.Unknown && lost == nil {
			lost = err
		}
		if errors.Is(err, errs.ErrClosed) { // what is left is the settler's
			return 0, cmp.Or(lost, err)
		}
		left = deadline - s.core.Clock.Now()
		if left <= 0 || core.Sleep(context.WithoutCancel(ctx), min(left, core.Backoff(try))) != nil {
			return 0, cmp.Or(lost, err)
		}
		left = deadline - s.core.Clock.Now()
	}
}

// settleRelease repeats a release in the background until Redis has answered one, for as long as Redis may have the lease: then
// settled, if it is not nil, is called.
func (l *Lease) settleRelease(settled func()) {
	l.manager.core.Settler.Clean(settle.Cleanup{
		Call: l.GiveBack,
		Settles: func(c *script.Call) bool {
			_, _ = l.manager.receivers(c) // it logs what is wrong with it
			if settled != nil {
				settled()
			}
			return true
		},
		Until: l.releaseUntil(),
	})
}

// releaseUntil returns how long to go on with a release that is not answered: as long as Redis may have the lease, which it
// began to count when a call arrived.
func (l *Lease) releaseUntil() time.Duration {
	l.mu.Lock()
	until := l.member.End()
	if l.ops != nil {
		until = max(until, l.ops.until)
	}
	l.mu.Unlock()
	return max(l.now()+l.manager.core.Lease, until+settle.Straggler)
}

// receivers reads the reply of a script that releases: 0 if the owner did not hold the lock, else one more than the clients that
// received its message. It logs once that the user may not publish: then waiters learn of a release by their own re-checks only.
func (s *Manager) receivers(c *script.Call) (int64, error) {
	n, err := c.Int()
	if n >= 0 {
		return n, err
	}
	s.muted.Do(func() {
		s.core.Logger.Warn("redlatch: Redis lets this user publish no messages: waiters learn of a release up to a second late",
			"channel", s.kind.Channel(c.Key()))
	})
	return 1, err
}

// unlockNested ends a level that has others around it. The caller holds l.mu, which it unlocks.
func (l *Lease) unlockNested(ctx context.Context, h *Hold, deadline time.Time) error {
	now := l.now()
	cancel := h.endUnlockedLocked(now)
	limit := l.boundLocked(deadline, now)
	l.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer stop()
	ops, err := l.beginOperation(ctx)
	if err != nil {
		return errNoAnswer
	}
	defer ops.done()
	l.mu.Lock()
	levels, length := l.countLocked(), l.longestLocked(l.now())
	open := l.state == holding && l.levels != nil
	l.mu.Unlock()
	if !open {
		return l.releaseEmpty(ctx)
	}
	kept, _, err := l.keep(ctx, levels, length)
	if errors.Is(err, errGivenUp) {
		return l.releaseEmpty(ctx)
	}
	if err != nil {
		l.settleLevels()
		if ctx.Err() != nil {
			return errNoAnswer
		}
		return unknown(err)
	}
	if !kept {
		l.Gone()
		return errs.ErrNotHeld
	}
	return nil
}

// releaseEmpty releases a lease that has no level any more: the last one was about to be nested when the one around it was unlocked,
// and was taken back. It does nothing for one that was released, or lost, with its levels. The caller has begun an operation; ctx has a deadline.
func (l *Lease) releaseEmpty(ctx context.Context) error {
	sh := l.manager.shard(l.name())
	sh.mu.Lock()
	l.mu.Lock()
	empty := l.state == holding && l.levels == nil
	if empty {
		l.beginReleaseLocked(sh)
	}
	wait := l.member.Renewing()
	l.mu.Unlock()
	sh.mu.Unlock()
	if !empty {
		return nil
	}
	_ = await(ctx, wait) // no longer than the caller waits
	deadline, _ := ctx.Deadline()
	return l.release(ctx, max(time.Until(deadline), 10*time.Millisecond))
}

// errNoAnswer is the error of an inner Unlock that was not answered within its own bound.
var errNoAnswer = fmt.Errorf("%w: no answer in time", errs.ErrUnknown)

// longestLocked returns the lease that covers every level.
func (l *Lease) longestLocked(now time.Duration) time.Duration {
	length := l.lengthLocked(now)
	for h := l.levels; h != nil; h = h.next {
		if h.fixed != 0 {
			length = max(length, h.fixed-now)
		}
	}
	return max(length, time.Millisecond)
}

// pass releases a hold that was handed to a call which has given up, or hands it on.
func (h *Hold) pass() {
	h.lease.manager.soon(func() {
		_ = h.Unlock(context.Background()) //nolint:forbidigo // bounded; what cannot be released is settled
	})
}

// soon runs what releases a lease on one of the client's workers. Close waits for it.
func (s *Manager) soon(fn func()) {
	s.core.Begin()
	s.core.Workers.Go(func() {
		defer s.core.End()
		fn()
	})
}
