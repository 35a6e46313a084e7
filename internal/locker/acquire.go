package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// Patience is how long a call waits for a lock whose options set no limit.
type Patience uint8

// The patiences.
const (
	// Forever waits until the lock is acquired.
	Forever Patience = iota
	// Once asks one time.
	Once
)

// Acquire takes the lock: it nests where ctx descends from a live hold, and otherwise waits as long as the options, or else its
// patience, say.
func (n *Name) Acquire(ctx context.Context, o *Options, p Patience) (*lease.Hold, error) {
	if err := n.check(ctx, o); err != nil {
		return nil, err
	}
	hold, err := n.take(ctx, o.At(n.manager.core), p)
	if err != nil {
		return nil, o.Refused(ctx, err, n.Holder)
	}
	return hold, nil
}

// take is Acquire for a call that has been judged. What it returns does not say who holds the lock.
func (n *Name) take(ctx context.Context, o *Options, p Patience) (*lease.Hold, error) {
	if outer := n.HoldOf(ctx); outer != nil && n.manager.kind.Sharing != Pool {
		return n.nest(ctx, outer, o, p)
	}
	if !n.manager.core.Events.ObservesAcquire() {
		hold, _, err := n.acquire(ctx, o, p)
		return hold, err
	}
	ctx, call := n.manager.core.Events.BeginAcquire(ctx, n.manager.kind.Name, n.User())
	hold, asked, err := n.acquire(ctx, o, p)
	owner := ""
	if hold != nil {
		owner = hold.Owner()
	}
	call.End(ctx, owner, asked, err)
	return hold, err
}

// acquire is Acquire for a call that does not nest, and returns how often it asked Redis.
func (n *Name) acquire(ctx context.Context, o *Options, p Patience) (hold *lease.Hold, asked int, err error) {
	take := n.wait
	if o.Wait == nil && p == Once || o.Wait != nil && *o.Wait == 0 {
		take = n.once
	}
	return take(ctx, o)
}

// check judges a call before any I/O. A done ctx wins over everything but bad arguments.
func (n *Name) check(ctx context.Context, o *Options) error {
	if err := n.Check(); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if o.TakeOver != nil && n.manager.kind.shared() {
		return errNoTakeOver
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.manager.core.Closed() {
		return errs.ErrClosed
	}
	return nil
}

// errNoTakeOver is the error of a call that would take over from one of several who share a lock.
var errNoTakeOver = fmt.Errorf("%w: only a lock that one holder has alone is taken over", errs.ErrInvalid)

// once asks Redis one time, without waiting in the queue.
func (n *Name) once(ctx context.Context, o *Options) (hold *lease.Hold, asked int, err error) {
	if o.TakeOver == nil && n.TakenHere() {
		return nil, 0, errs.ErrNotAcquired
	}
	until := waitqueue.Never
	if limit := n.manager.core.Limit(ctx); limit > 0 {
		until = n.manager.core.Clock.Now() + limit
	}
	for asked = 1; ; asked++ {
		a := attemptOptions{verify: true}
		if until != waitqueue.Never {
			a.limit = max(until-n.manager.core.Clock.Now(), time.Millisecond)
		}
		t := n.attempt(ctx, nil, o, a)
		switch {
		case t.hold != nil:
			return t.hold, asked, nil
		case t.err == nil:
			return nil, asked, cmp.Or(t.instead, errs.ErrNotAcquired)
		case ctx.Err() != nil:
			return nil, asked, core.Conclude(ctx, script.NotDone, t.err) // what it may have acquired is taken back
		case errors.Is(t.err, errs.ErrClosed):
			return nil, asked, errs.ErrClosed
		case !t.repeatable() || asked > onceTries && !script.Parted(t.err):
			return nil, asked, core.Judged(t.err)
		case !n.manager.core.PauseUntil(ctx, asked-1, until):
			return nil, asked, core.Conclude(ctx, script.Judge(t.err), t.err)
		}
	}
}

// TakenHere reports whether this client itself knows that the lock is taken.
func (n *Name) TakenHere() bool {
	sh := n.manager.shard(n.text())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n.manager.kind.shared() {
		q := sh.readers[n.text()]
		return q != nil && q.Refused
	}
	return sh.held[n.text()] != nil
}

// Closed reports whether the client has begun to close.
func (n *Name) Closed() bool { return n.manager.core.Closed() }

// WaitedFor reports whether a call of this client waits for a lock that one holder has alone.
func (n *Name) WaitedFor() bool {
	sh := n.manager.shard(n.text())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.queues[n.text()] != nil
}

// onceTries is how often one attempt is repeated while Redis says that it cannot run it just now. While a slot moves to another
// node it is repeated until the call is over.
const onceTries = 5

// wait queues until the lock is acquired, ctx is done, the wait is over or the client closes.
func (n *Name) wait(ctx context.Context, o *Options) (hold *lease.Hold, asked int, err error) {
	sh := n.manager.shard(n.text())
	sh.mu.Lock()
	w := n.joinLocked(ctx, sh, o)
	sh.mu.Unlock()
	c := call{name: n, waiter: w}
	if o.Wait != nil {
		c.limit = n.manager.core.Clock.Now() + *o.Wait
	}
	defer func() {
		if hold == nil { // also if ctx has panicked
			c.leave()
		}
		if c.entry != nil {
			c.entry.ended()
		}
	}()
	hold, err = c.run(ctx, o)
	return hold, c.tries, err
}

// leave ends a call without a hold.
func (c *call) leave() {
	if handed := c.waiter.leave(); handed != nil { // handed on while this call gave up
		handed.Pass()
	}
	if c.entry != nil {
		c.entry.leave()
	}
}

// call is an acquiring call that may wait.
type call struct {
	name   *Name
	waiter *Waiter
	entry  *entry        // for kinds whose waiters are known to Redis; nil before the first question
	limit  time.Duration // when the wait is over, on the client's clock; 0 for no limit
	tries  int
	failed int           // tries in a row that got no answer
	since  time.Duration // of the first of them
	timer  *time.Timer
}

func (c *call) run(ctx context.Context, o *Options) (*lease.Hold, error) {
	defer func() {
		if c.timer != nil {
			c.timer.Stop()
		}
	}()
	for {
		next, left := c.waiter.nextStep()
		switch next {
		case stepHeld:
			return c.handed(ctx)
		case stepFail:
			return nil, c.waiter.failure()
		case stepAsk:
			hold, err := c.ask(ctx, o)
			if hold != nil || err != nil {
				return hold, err
			}
			continue
		}
		if err := c.sleep(ctx, left); err != nil {
			return nil, err
		}
	}
}

// handed takes a hold that another goroutine of this client handed on.
func (c *call) handed(ctx context.Context) (*lease.Hold, error) {
	w := c.waiter
	if err := ctx.Err(); err != nil {
		return nil, err // the hold goes on to the next one
	}
	w.queue.shard.mu.Lock()
	hold := w.hold
	w.hold = nil // taken: leave must not pass it on
	w.queue.shard.mu.Unlock()
	if c.entry != nil { // the hold came with an owner id of its own
		c.entry.leave()
	}
	return hold, nil
}

// ask asks Redis as the head of the queue. With neither a hold nor an error the call goes on waiting.
func (c *call) ask(ctx context.Context, o *Options) (*lease.Hold, error) {
	w, q := c.waiter, c.waiter.queue
	q.shard.mu.Lock()
	w.asked = q.now()
	wakeups := q.Asking(&w.Waiter, w.asked)
	q.shard.mu.Unlock()
	if c.entry == nil && q.manager.kind.Leave != nil {
		c.entry = c.name.newEntry(o)
		w.entry = c.entry.id
	}

	// The second attempt looks at the type of a busy key: the first refusal is to cost Redis one command. Where Redis orders the waiters
	// a second attempt may be long in coming.
	verify := c.tries == 1 || q.manager.kind.ordersWaiters()
	left := time.Duration(0)
	if c.limit != 0 {
		left = max(c.limit-q.now(), time.Microsecond)
	}
	t := c.name.attempt(ctx, w, o, attemptOptions{limit: left, verify: verify, entry: c.entry})
	c.tries++
	w.answered(t)
	if t.hold != nil {
		return t.hold, nil
	}
	if err := c.giveUp(ctx); err != nil {
		return nil, err
	}
	if t.err != nil {
		return nil, c.failure(t)
	}
	if t.instead != nil {
		w.endTogether(t.instead)
		return nil, t.instead
	}
	c.failed = 0
	w.busy(wakeups, t)
	return nil, nil
}

// answered notes what came of an attempt.
func (w *Waiter) answered(t attemptResult) {
	q := w.queue
	q.shard.mu.Lock()
	w.AskEnded() // what the upkeep learns from here on may be newer
	q.Answered(q.now(), t.err)
	q.shard.mu.Unlock()
}

// endTogether ends the waits that had begun when this call asked: the answer that it got instead of the lock is theirs too. Those who
// came later ask for themselves, as the answer may be older than their calls.
func (w *Waiter) endTogether(instead error) {
	q := w.queue
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	q.Each(func(call any) {
		if other, ok := call.(*Waiter); ok && other.since != 0 && other.since < w.asked {
			other.failed = instead
		}
	})
	q.admitLocked(q.now())
}

// busy sets when to ask again, and joins the channel that announces releases.
func (w *Waiter) busy(wakeups uint64, t attemptResult) {
	q := w.queue
	q.shard.mu.Lock()
	q.Refused = true
	join := q.member == nil && !q.joining
	q.joining = true
	q.busyLocked(w, wakeups, t.ttl)
	q.shard.mu.Unlock()
	if !join {
		return
	}
	member, confirmed := q.manager.core.Router.Join(w.channel(), q)
	if !q.manager.kind.ordersWaiters() {
		q.manager.core.Waiting.Add(1)
	}
	q.shard.mu.Lock()
	if q.Empty() { // handed on meanwhile to the last one in the queue
		q.shard.mu.Unlock()
		q.left(member)
		return
	}
	q.member = member
	q.shard.mu.Unlock()
	if confirmed {
		q.Subscribed()
	}
}

// failure decides what the error of an attempt means for the wait. One that cannot pass ends it, on the first attempt also a refused
// connection; others are waited out for at most one lease.
func (c *call) failure(t attemptResult) error {
	now := c.name.manager.core.Clock.Now()
	certain := script.Judge(t.err) == script.NotDone
	if certain && (!t.passing || c.tries == 1 && script.Refused(t.err)) {
		return t.err
	}
	if c.failed == 0 {
		c.since = now
	}
	c.failed++
	if now-c.since >= c.name.manager.core.Lease && !script.Parted(t.err) { // a slot may be on the move for long
		return core.Judged(t.err)
	}
	q, again := c.waiter.queue, now+core.Backoff(c.failed)
	q.shard.mu.Lock()
	q.AskBy(again)
	if c.waiter.options.TakeOver != nil {
		c.waiter.AdmittedAt = again
	}
	q.shard.mu.Unlock()
	return nil
}

// giveUp returns why the call is to end, if it is.
func (c *call) giveUp(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return c.with(err)
	}
	if c.name.manager.core.Closed() {
		return errs.ErrClosed
	}
	if c.limit != 0 && c.name.manager.core.Clock.Now() >= c.limit {
		return c.with(errs.ErrNotAcquired)
	}
	return nil
}

// with adds to why the wait ended that nobody knows whether the lock was free, if the last question got no answer.
func (c *call) with(err error) error {
	last := c.unanswered()
	switch {
	case last == nil:
		return err
	case errors.Is(last, errs.ErrUnavailable):
		return fmt.Errorf("%w (last error: %w)", err, last)
	}
	return fmt.Errorf("%w: %w (last error: %w)", err, errs.ErrUnavailable, last)
}

// unanswered returns the error of the last attempt or re-check for the call's queue, or of the one in flight; nil for one that was
// answered.
func (c *call) unanswered() error {
	w, q, now := c.waiter, c.waiter.queue, c.name.manager.core.Clock.Now()
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if w.lastErr != nil { // of the upkeep
		return w.lastErr
	}
	if err := q.Unanswered(now); err != nil {
		return err
	}
	if u := q.manager.kind.Upkeep; u != nil && u.Silent(w, now) {
		return script.ErrNoAnswer
	}
	return nil
}

// sleep waits for a wake-up, for ctx, for Close, or until the time is over.
func (c *call) sleep(ctx context.Context, left time.Duration) error {
	if c.limit != 0 {
		left = min(left, c.limit-c.name.manager.core.Clock.Now())
	}
	wake := c.waiter.sleep()
	if wake == nil {
		return c.giveUpUnlessHanded(ctx)
	}
	var timer <-chan time.Time
	if left < waitqueue.Never {
		if c.timer == nil {
			c.timer = time.NewTimer(left)
		} else {
			c.timer.Reset(left)
		}
		timer = c.timer.C
	}
	select {
	case <-wake:
	case <-timer:
	case <-ctx.Done():
	case <-c.name.manager.core.Closing():
	}
	return c.giveUpUnlessHanded(ctx)
}

// giveUpUnlessHanded returns why the call is to end, unless it has been given the lock.
func (c *call) giveUpUnlessHanded(ctx context.Context) error {
	if c.waiter.handedOn() {
		return nil
	}
	return c.giveUp(ctx)
}

func (w *Waiter) handedOn() bool {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	return w.hold != nil
}

// nest adds a level to a live hold from which ctx descends.
func (n *Name) nest(ctx context.Context, outer *lease.Hold, o *Options, p Patience) (*lease.Hold, error) {
	mode := n.manager.mode
	if mode == lease.Write && !outer.Exclusive() {
		return nil, errs.ErrUpgrade
	}
	if o.NoNest {
		return nil, errs.ErrHeld
	}
	return bounded(ctx, o, p, lease.CallLimit(n.manager.core), func(wait context.Context) (*lease.Hold, error) {
		return outer.Nest(ctx, wait, o.Term, mode)
	})
}

// bounded calls fn, which waits for nobody but Redis, under a context that ends when the wait is over, or after the limit for a call
// that does not wait.
func bounded(ctx context.Context, o *Options, p Patience, limit time.Duration, fn func(wait context.Context) (*lease.Hold, error)) (*lease.Hold, error) {
	wait, stop := ctx, context.CancelFunc(func() {})
	switch {
	case o.Wait != nil && *o.Wait > 0:
		wait, stop = context.WithTimeout(ctx, *o.Wait)
	case p == Once || o.Wait != nil: // it does not wait for others, but has to hear from Redis
		wait, stop = context.WithTimeout(ctx, limit)
	}
	defer stop()
	hold, err := fn(wait)
	if err == nil || wait.Err() == nil || ctx.Err() != nil || errors.Is(err, errs.ErrNotAcquired) {
		return hold, err
	}
	if o.Wait != nil && *o.Wait > 0 { // nobody but Redis was waited for
		return nil, fmt.Errorf("%w: %w", errs.ErrNotAcquired, errs.ErrUnavailable)
	}
	return nil, lease.ErrNoAnswer
}
