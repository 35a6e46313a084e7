package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

const (
	unlockLimit = 3 * time.Second        // an Unlock takes no longer
	unlockFloor = 100 * time.Millisecond // a deadline of ctx that is nearer than this counts as this
	unlockLeast = 10 * time.Millisecond  // what an Unlock that waits for earlier calls keeps for the release
)

// Unlock ends the level. With the last one the lock is handed to a call of this client that waits for it, if it may be, and
// otherwise released in Redis.
func (h *Hold) Unlock(ctx context.Context) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	if h == nil {
		return errs.ErrNotHeld
	}
	deadline, _ := ctx.Deadline() // not under a mutex: ctx may be made of this hold
	return Unlocking(ctx, h.unlock(ctx, deadline))
}

// Unlocking returns the error of an Unlock that ctx may have ended: it says so if the outcome is unknown.
func Unlocking(ctx context.Context, err error) error {
	if !errors.Is(err, errs.ErrUnknown) {
		return err
	}
	deadline, _ := ctx.Deadline()
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
	l := h.lease
	guard := l.manager.listener.Guard(l)
	guard.Lock()
	l.mu.Lock()
	if h.over {
		err := h.notHeldLocked()
		l.mu.Unlock()
		guard.Unlock()
		return err
	}
	now := l.now()
	if h.lateLocked(now) {
		l.mu.Unlock()
		guard.Unlock()
		l.expire(now)
		return h.unlock(ctx, deadline) // a renewal's answer may have come between
	}
	l.unlinkLocked(h)
	if l.levels != nil {
		l.downgradeLocked()
		guard.Unlock()
		return l.unlockNested(ctx, h, deadline) // unlocks l.mu
	}
	handedOff := l.handOffLocked(h, now)
	if handedOff == nil {
		l.beginReleaseLocked()
	}
	cancel := h.endUnlockedLocked(now)
	wait, ops, limit := l.member.Renewing(), l.ops, l.boundLocked(deadline, now)
	l.mu.Unlock()
	guard.Unlock()
	if cancel != nil {
		cancel()
	}
	if handedOff != nil {
		handedOff()
		l.notifyReleased()
		return nil
	}
	if wait == nil && ops == nil {
		return l.release(ctx, limit)
	}
	until := l.now() + limit
	defer l.awaitEarlierCalls(wait, ops, limit-unlockLeast)()
	return l.release(ctx, max(until-l.now(), unlockLeast))
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
	if e := l.manager.core.Events; e.Hooks.HoldEnd != nil {
		e.HoldEnded(l.manager.kind.Name, l.user(), l.Owner(), l.now()-l.since, nil)
	}
}

// endUnlockedLocked ends a level that its user unlocked. The cause is made only if somebody looks at the context.
func (h *Hold) endUnlockedLocked(now time.Duration) func() {
	h.markOverLocked(now)
	if h.cancel == nil {
		return nil
	}
	return h.endContextLocked(h.lease.unlocked(h))
}

// beginReleaseLocked stops renewal, before the release is sent. Close waits for endRelease.
func (l *Lease) beginReleaseLocked() {
	l.manager.core.Begin()
	l.state = releasing
	l.manager.core.Timers.Stop(&l.member.Timer)
	l.manager.listener.Releasing(l)
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

// handOffLocked gives the lease to a call of this client that waits for it, unless the client has had the lock for longer than the
// budget, or more is to be done than to pass the level on. It returns what to do afterwards; nil if the lease was not given away.
func (l *Lease) handOffLocked(h *Hold, now time.Duration) (after func()) {
	c := l.manager.core
	if now-l.since >= c.HandoffBudget || l.member.End()-now <= c.Lease/3 || l.leaseLocked() != c.Lease || !l.plainLocked(h) || c.Closed() {
		return nil
	}
	return l.manager.listener.HandOff(l, now)
}

// plainLocked reports whether one level without limits of its own was all there is to the lease, and nothing is in flight.
func (l *Lease) plainLocked(h *Hold) bool {
	return h.mode == Write && l.state == holding && l.member.Fresh() && !l.ops.busy() && l.token == 0 && h.fixed == 0 && h.limit == 0
}

// CallLimit returns how long a call may take that waits for Redis alone.
func CallLimit(c *core.Core) time.Duration { return min(unlockLimit, c.CallTimeout) }

// boundLocked returns how long an Unlock may take whose ctx has this deadline; the zero time is none.
func (l *Lease) boundLocked(deadline time.Time, now time.Duration) time.Duration {
	limit := CallLimit(l.manager.core)
	if rest := l.member.End() - now; rest < limit {
		limit = max(rest, unlockLeast)
	}
	if deadline.IsZero() {
		return limit
	}
	if left := time.Until(deadline); left > 0 {
		limit = min(limit, max(left, unlockFloor))
	}
	return limit
}

// endRelease is finish for a release that beginReleaseLocked began. What it left unknown is the settler's.
func (l *Lease) endRelease(notified int) {
	l.finish(notified)
	l.manager.core.End()
}

// release releases the lock in Redis after its last level has ended.
func (l *Lease) release(ctx context.Context, limit time.Duration) error {
	notified, err := l.sendRelease(ctx, limit)
	open, result := l.concludeRelease(notified, err, nil)
	if open {
		return core.Explain(fmt.Errorf("%w: %w", errs.ErrUnknown, err))
	}
	return result
}

// concludeRelease takes what came of a release: the clients that were notified as sendRelease counts them, or an error. It returns
// the error of the Unlock; or that the outcome is open, and is being settled: then settled is called, if it is not nil.
func (l *Lease) concludeRelease(notified int64, err error, settled func()) (open bool, result error) {
	open = err != nil && !script.Final(err)
	if open {
		l.SettleRelease(settled)
	}
	l.endRelease(int(notified) - 1)
	if err == nil && notified == 0 {
		l.notifyLost(CauseGone)
		return false, errs.ErrNotHeld
	}
	l.notifyReleased()
	return open, core.Explain(err)
}

// sendRelease sends a release until it is answered or the limit is over, whatever becomes of ctx. A repeated one that finds nothing counts as done:
// the one before did it. That of UnlockBy fails then with the error of the one before. It returns 0 if the owner did not hold the lock,
// else one more than the clients that were notified of it.
func (l *Lease) sendRelease(ctx context.Context, limit time.Duration) (notified int64, err error) {
	m := l.manager
	deadline := m.core.Clock.Now() + limit
	var lost error // of the first attempt that may have run: it says more than those after it
	for try, left := 0, limit; ; try++ {
		ask := urgent(max(left, time.Millisecond))
		ask.Deaf = true
		call, plain := l.releaseCall()
		err := m.core.Batch.Do(ctx, call, ask)
		if err == nil {
			n, err := m.Receivers(call)
			switch {
			case err != nil || n > 0 || lost == nil:
				return n, err
			case plain:
				return 1, nil
			}
			return 0, lost
		}
		if script.Final(err) {
			return 0, cmp.Or(lost, err) // the first one may have run; the settler goes on
		}
		if script.Judge(err) == script.Unknown && lost == nil {
			lost = err
		}
		if errors.Is(err, errs.ErrClosed) { // what is left is the settler's
			return 0, cmp.Or(lost, err)
		}
		left = deadline - m.core.Clock.Now()
		if left <= 0 || core.Sleep(context.WithoutCancel(ctx), min(left, core.Backoff(try))) != nil {
			return 0, cmp.Or(lost, err)
		}
		left = deadline - m.core.Clock.Now()
	}
}

// SettleRelease repeats a release in the background until Redis has answered one, for as long as Redis may have the lease: then
// settled, if it is not nil, is called, once.
func (l *Lease) SettleRelease(settled func()) {
	var once sync.Once // several repetitions may be in flight
	l.manager.core.Settler.Clean(settle.Cleanup{
		Call: l.GiveBack,
		Settles: func(c *script.Call) bool {
			_, _ = l.manager.Receivers(c) // it logs what is wrong with it
			if settled != nil {
				once.Do(settled)
			}
			return true
		},
		Until: l.ReleaseUntil(),
	})
}

// ReleaseUntil returns how long to go on with a release that is not answered: as long as Redis may have the lease, which it
// began to count when a call arrived.
func (l *Lease) ReleaseUntil() time.Duration {
	l.mu.Lock()
	until := l.member.End()
	if l.ops != nil {
		until = max(until, l.ops.until)
	}
	l.mu.Unlock()
	return max(l.now()+l.manager.core.Lease, until+settle.Straggler)
}

// Receivers reads the reply of a script that releases: 0 if the owner did not hold the lock, else one more than the clients that
// received its message. It logs once that the user may not publish: then waiters learn of a release by their own re-checks only.
func (m *Manager) Receivers(c *script.Call) (int64, error) {
	n, err := c.Int()
	if n >= 0 {
		return n, err
	}
	m.muted.Do(func() {
		m.core.Logger.Warn("redlatch: Redis lets this user publish no messages: waiters learn of a release up to a second late",
			"channel", m.kind.Channel(c.Key()))
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
		l.settleLevels()
		return ErrNoAnswer
	}
	defer ops.done()
	l.mu.Lock()
	levels, length := l.countLocked(), l.longestLocked(l.now())
	open := l.state == holding && l.levels != nil
	wait := l.member.Renewing()
	l.mu.Unlock()
	if !open {
		return l.releaseEmpty(ctx)
	}
	if levels.Write == 0 {
		_ = await(ctx, wait) // a renewal of the writer that arrived after the downgrade would find none
	}
	kept, _, err := l.keep(ctx, levels, length)
	if errors.Is(err, errGivenUp) {
		return l.releaseEmpty(ctx)
	}
	if err != nil {
		l.settleLevels()
		if ctx.Err() != nil {
			return ErrNoAnswer
		}
		return core.Judged(err)
	}
	if !kept {
		l.Gone()
		return errs.ErrNotHeld
	}
	return nil
}

// releaseEmpty releases a lease that has no level any more: the last one was about to be nested when the one around it was unlocked,
// and was taken back. For one that was released meanwhile it does nothing; for one that was lost it returns [errs.ErrNotHeld]. The caller
// has begun an operation; ctx has a deadline.
func (l *Lease) releaseEmpty(ctx context.Context) error {
	guard := l.manager.listener.Guard(l)
	guard.Lock()
	l.mu.Lock()
	empty := l.state == holding && l.levels == nil
	if empty {
		l.beginReleaseLocked()
	}
	wait, gone := l.member.Renewing(), l.state == lost
	l.mu.Unlock()
	guard.Unlock()
	switch {
	case gone:
		return errs.ErrNotHeld
	case !empty:
		return nil
	}
	deadline, _ := ctx.Deadline()
	l.awaitEarlierCalls(wait, nil, time.Until(deadline)-unlockLeast)()
	return l.release(ctx, max(time.Until(deadline), unlockLeast))
}

// ErrNoAnswer is the error of a call on a lease that was not answered within its own bound.
var ErrNoAnswer = fmt.Errorf("%w: %w", errs.ErrUnknown, script.ErrNoAnswer)

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

// Pass releases a hold that was handed to a call which has given up, or hands it on.
func (h *Hold) Pass() {
	h.lease.manager.soon(func() {
		_ = h.UnlockSurely(context.Background()) //nolint:forbidigo // bounded; what cannot be released is settled
	})
}

// Abandoned returns the attempt that asked for the lease, as a call that is given up.
func (l *Lease) Abandoned(length time.Duration) *settle.Abandoned {
	return &settle.Abandoned{Settler: l.manager.core.Settler, Taker: l, For: length}
}

// Took reports whether an attempt was granted the lease.
func (l *Lease) Took(c *script.Call) bool {
	reply, err := l.manager.kind.Acquired(c)
	return err == nil && reply.Granted
}

// GiveBack returns the call that releases the lease.
func (l *Lease) GiveBack() *script.Call {
	call, _ := l.releaseCall()
	return call
}

// releaseCall returns the call that releases the lease, and whether it is the kind's Release, not that of UnlockBy.
func (l *Lease) releaseCall() (call *script.Call, plain bool) {
	var release func() *script.Call
	l.mu.Lock()
	if l.ops != nil {
		release = l.ops.release
	}
	l.mu.Unlock()
	if release != nil {
		return release(), false
	}
	return l.manager.kind.Release(l.key, l.owner), true
}

// UnlockBy is Unlock by a call of the caller's in place of the kind's Release, which does more in the same step and has the same reply. It
// may run twice: a 0 after a run whose reply was lost leaves the outcome unknown. If Redis refuses it, for example since it has no memory
// left, the lock is released without it in the background.
func (h *Hold) UnlockBy(ctx context.Context, release func() *script.Call) error {
	l := h.lease
	l.mu.Lock()
	if l.state == holding {
		l.opsLocked().release = release
	}
	l.mu.Unlock()
	return h.UnlockSurely(ctx)
}

// UnlockSurely is Unlock, and goes on in the background if Redis refuses the release.
func (h *Hold) UnlockSurely(ctx context.Context) error {
	err := h.Unlock(ctx)
	if script.Final(err) {
		h.Settle()
	}
	return err
}

// releasePlainlyLocked has the lease be released by the kind's Release from here on.
func (l *Lease) releasePlainlyLocked() {
	if l.ops != nil {
		l.ops.release = nil
	}
}

// GaveBack reports whether it released anything.
func (l *Lease) GaveBack(c *script.Call) bool {
	n, err := l.manager.Receivers(c)
	return err == nil && n > 0
}
