package rmultilock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/rlock"
)

const (
	nodeShare    = 10                     // a node is waited for no longer than this part of the lease
	nodeLeast    = 20 * time.Millisecond  // but at least
	nodeMost     = 500 * time.Millisecond // and at most
	shortestHold = 10 * time.Millisecond  // the shortest lease
)

// nodeLimit is how long a node is waited for.
func nodeLimit(length time.Duration) time.Duration {
	return min(max(length/nodeShare, nodeLeast), nodeMost)
}

// drift is the allowance for clocks that run at different speeds.
func drift(length time.Duration) time.Duration { return length/100 + 2*time.Millisecond }

// majority takes a majority of the locks, all at the same time, in rounds.
func (c *call) majority() (*hold, error) {
	length := c.lock.lease
	if c.options.Lease != nil {
		length = *c.options.Lease
	}
	k := keeper{length: length, renews: c.options.Lease == nil}
	if c.options.MaxHold != nil {
		k.most = *c.options.MaxHold
		length = min(length, k.most)
	}
	c.options.Lease, c.options.MaxHold = &length, nil
	since := time.Time{} // of the rounds in a row that reached no majority
	for round := 0; ; round++ {
		h, err := c.round(k, length)
		if h != nil {
			return h, nil
		}
		switch {
		case c.ctx.Err() != nil:
			return nil, c.with(c.ctx.Err())
		case !errors.Is(err, errs.ErrNotAcquired):
			return nil, err
		case c.single && (!c.split || round == splitTries), c.expired():
			return nil, err
		}
		switch {
		case c.lastErr == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > c.lock.lease:
			return nil, err
		}
		if err := c.pause(round); err != nil {
			return nil, err
		}
	}
}

// splitTries is how often a single try is repeated that was granted by some: nobody may have a majority, or what is left of a hold
// is still being released.
const splitTries = 2

// with adds why the last round failed to why the call ended.
func (c *call) with(err error) error {
	if c.lastErr == nil {
		return err
	}
	return fmt.Errorf("%w (last error: %w)", err, c.lastErr)
}

// round asks all nodes once. Without a hold nothing is left of it but what is being released.
func (c *call) round(k keeper, length time.Duration) (*hold, error) {
	h := c.newHold()
	start := time.Now()
	h.keeper = k
	h.keeper.hold = h
	if k.most > 0 {
		h.keeper.until = start.Add(k.most)
	}
	for i := range h.parts {
		h.parts[i].asked = true
	}
	for i := range h.parts {
		h.ask(c.ctx, i, &c.options)
	}
	limit := nodeLimit(length)
	if !c.limit.IsZero() {
		limit = min(limit, max(time.Until(c.limit), nodeLeast))
	}
	timer := time.NewTimer(limit)
	select {
	case <-h.decided:
	case <-timer.C:
	case <-c.ctx.Done():
	}
	timer.Stop()
	h.mu.Lock()
	valid := time.Since(start) < length-drift(length)
	if h.live >= h.lock.need && valid && c.ctx.Err() == nil {
		h.startLocked()
		h.keeper.startLocked()
		h.mu.Unlock()
		return h, nil
	}
	err := c.verdictLocked(h)
	c.split = c.lastErr == nil && (h.live > 0 || h.waiting > 0)
	h.mu.Unlock()
	h.abandon(c.ctx)
	return nil, err
}

// verdictLocked returns why a round failed: what cannot pass if that alone denies a majority, else that the lock was not acquired.
func (c *call) verdictLocked(h *hold) error {
	var final, failure error
	finals, failures := 0, 0
	for _, p := range h.parts {
		switch {
		case p.err == nil && p.held == nil:
			failures, failure = failures+1, errNoAnswer
		case p.err == nil || errors.Is(p.err, errs.ErrNotAcquired):
		case isFinal(p.err):
			finals, final = finals+1, p.err
		default:
			failures, failure = failures+1, p.err
		}
	}
	spare := len(h.parts) - h.lock.need
	c.lastErr = nil
	switch {
	case finals > spare:
		return final
	case finals+failures > spare: // no majority could be reached
		if failure == nil {
			failure = final
		}
		c.lastErr = fmt.Errorf("%d of %d locks failed: %w", finals+failures, len(h.parts), failure)
		return fmt.Errorf("%w: %w", errs.ErrNotAcquired, c.lastErr)
	}
	return errs.ErrNotAcquired
}

// errNoAnswer is the error of a node that was not waited for any longer.
var errNoAnswer = errors.New("no answer in time")

// isFinal reports whether an error does not pass by itself.
func isFinal(err error) bool {
	for _, final := range []error{errs.ErrInvalid, errs.ErrWrongType, errs.ErrHeld, errs.ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// ask sends a try for one of the locks.
func (h *hold) ask(ctx context.Context, i int, o *lease.Options) {
	m := h.lock.members[i]
	if m.name != nil && m.name.HoldOf(ctx) == nil {
		try := m.name.Begin(ctx, o, func(l *lease.Hold, err error) {
			if l == nil {
				h.answer(i, part{}, err)
				return
			}
			h.answer(i, part{held: l, lease: l}, nil)
		})
		h.asks(i, try)
		return
	}
	opts := *o
	go func() { // ends with the try, which does not wait for the lock
		p, err := m.acquire(func(l rlock.Locker) (*rlock.Hold, error) {
			return l.TryLock(ctx, func(to *lease.Options) { *to = opts })
		})
		h.answer(i, p, err)
	}()
}
