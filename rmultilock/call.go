package rmultilock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/rlock"
)

// shortWait bounds the wait for a busy lock while others are held, beside the time of the answers.
const shortWait = 20 * time.Millisecond

// call is one acquiring call.
type call struct {
	lock    *Lock
	ctx     context.Context //nolint:containedctx // of the call, which ends before it
	outer   *hold
	options lease.Options // those of each lock
	single  bool          // it does not wait
	start   time.Time
	limit   time.Time // when the wait is over; zero for no limit
	lastErr error     // of the last round, if it was not that locks were taken
	split   bool      // some locks were not taken in the last round
}

// all takes all locks, one after the other.
func (c *call) all() (*hold, error) {
	first := 0
	for round := 0; ; round++ {
		h := c.newHold()
		done, busy, err := false, 0, error(nil)
		if round == 0 {
			done, first, err = c.takeAtOnce(h)
			busy = first
		}
		if !done {
			busy, err = c.takeAll(h, first)
		}
		if err == nil && h.begin() {
			return h, nil
		}
		if err == nil { // the lease of one of them was over before the last was acquired
			err = errs.ErrNotAcquired
		}
		h.abandon(c.ctx)
		if ended := c.ctx.Err(); ended != nil {
			return nil, ended
		}
		if c.single || c.expired() || isFinal(err) {
			return nil, err
		}
		if busy == first && !errors.Is(err, errs.ErrNotAcquired) {
			return nil, err // what the lock itself waited out for as long as it does
		}
		first = busy
		if err := c.pause(round); err != nil {
			return nil, err
		}
	}
}

// takeAll takes the first lock, however long that takes, and then the others: for those after it in the order it waits a moment, and for
// those before it not at all. Their holder may be waiting for the first one, and of two who have what the other wants one has to
// yield at once. It returns which one was not acquired.
func (c *call) takeAll(h *hold, first int) (busy int, err error) {
	rest := make([]int, 0, len(c.lock.members))
	for i := range c.lock.members {
		if i != first {
			rest = append(rest, i)
		}
	}
	if err := c.takeOne(h, first, c.left()); err != nil {
		return first, err
	}
	tried, busy, err := c.takeTogether(h, rest)
	if tried && (err == nil || c.single || c.expired() || busy < first || !errors.Is(err, errs.ErrNotAcquired)) {
		return busy, err
	}
	for _, i := range rest {
		take := c.takeSoon
		if i < first {
			take = c.takeNow
		}
		if err := take(h, i); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// takeAtOnce takes all locks in one script, if that is possible and all are free. It returns which one to begin with else.
func (c *call) takeAtOnce(h *hold) (done bool, busy int, err error) {
	every := make([]int, len(c.lock.members))
	for i := range every {
		every[i] = i
	}
	tried, busy, err := c.takeTogether(h, every)
	switch {
	case !tried:
		return false, 0, nil
	case err == nil:
		return true, 0, nil
	case c.single || c.expired() || c.ctx.Err() != nil || isFinal(err) || errors.Is(err, errNoAnswer):
		return true, busy, err
	}
	return false, busy, nil
}

// takeSoon takes one lock if it is free, or becomes free in a moment: the others are held meanwhile. The moment is longer
// than it takes the server to answer, however far it is.
func (c *call) takeSoon(h *hold, i int) error {
	asked := time.Now()
	err := c.takeNow(h, i)
	if c.single || !errors.Is(err, errs.ErrNotAcquired) {
		return err
	}
	wait := shortWait + 4*time.Since(asked)
	if left := c.left(); left != nil {
		wait = min(wait, *left)
	}
	return c.takeOne(h, i, &wait)
}

// takeNow takes one lock if it is free.
func (c *call) takeNow(h *hold, i int) error {
	none := time.Duration(0)
	return c.takeOne(h, i, &none)
}

// takeOne takes one lock, and waits for so long; without a limit if wait is nil.
func (c *call) takeOne(h *hold, i int, wait *time.Duration) error {
	p, err := c.lock.members[i].acquire(func(l rlock.Locker) (*rlock.Hold, error) { return l.Lock(c.ctx, c.option(wait)) })
	if err != nil {
		return err
	}
	h.answer(i, p, nil)
	return nil
}

// option returns the options of each lock as one.
func (c *call) option(wait *time.Duration) rlock.Option {
	o := c.options
	o.Wait = wait
	return func(to *lease.Options) { *to = o }
}

// left returns how much of the wait is left: nil without a limit, 0 for a call that does not wait.
func (c *call) left() *time.Duration {
	left := time.Duration(0)
	switch {
	case c.single:
	case c.limit.IsZero():
		return nil
	default:
		left = max(time.Until(c.limit), 0)
	}
	return &left
}

// expired reports whether the wait is over.
func (c *call) expired() bool { return !c.limit.IsZero() && !time.Now().Before(c.limit) }

// pause waits at random before the next round, the longer the more there were, and returns why the call is to end.
func (c *call) pause(round int) error {
	longest := min(4*time.Millisecond<<min(round, 6), 200*time.Millisecond)
	d := time.Millisecond + rand.N(longest)
	if !c.limit.IsZero() {
		d = min(d, max(time.Until(c.limit), 0))
	}
	if err := core.Sleep(c.ctx, d); err != nil {
		return c.with(err)
	}
	if c.expired() {
		return c.with(errs.ErrNotAcquired)
	}
	return nil
}

// begin makes a hold of the parts, if enough are still certain.
func (h *hold) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live < h.lock.need || !time.Now().Before(h.deadlineLocked()) {
		return false
	}
	h.startLocked()
	return true
}

// abandon releases what was acquired, and what is acquired yet, after a round that failed. It waits a moment for those that can be
// reached, unless ctx is done.
func (h *hold) abandon(ctx context.Context) {
	h.mu.Lock()
	left := h.overLocked()
	h.mu.Unlock()
	h.cancel(errs.ErrNotAcquired)
	h.giveUp()
	limit := abandonLimit
	if ctx.Err() != nil {
		limit = 0
	}
	t := newTally(len(left), len(left))
	for i, p := range left {
		p.release(ctx, func(err error) { t.answer(i, err) })
	}
	_ = t.wait(limit) // what has not answered by then is being released in the background
}

// abandonLimit bounds the wait for releases after a round that failed.
const abandonLimit = 100 * time.Millisecond
