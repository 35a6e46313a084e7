package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// nest adds a level to the lease of a live hold. A level of reading may nest in one of writing, and may outlive it: the downgrade. The
// other way round it is [errs.ErrUpgrade], since the call would wait for its own caller.
func (h *Hold) nest(ctx context.Context, o *Options, mode Mode, p Patience) (*Hold, error) {
	if mode == Write && !h.lease.exclusive() {
		return nil, errs.ErrUpgrade
	}
	if o.NoNest {
		return nil, errs.ErrHeld
	}
	return bounded(ctx, o, p, h.lease.manager.unlockLimit(), func(wait context.Context) (*Hold, error) {
		ops, err := h.lease.beginOperation(wait)
		if err != nil {
			return nil, err
		}
		defer ops.done()
		return h.level(ctx, wait, o, mode)
	})
}

// exclusive reports whether nobody else may hold the lock.
func (l *Lease) exclusive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exclusiveLocked()
}

func (l *Lease) exclusiveLocked() bool { return l.countLocked().Write > 0 }

// bounded calls fn, which waits for nobody but Redis, under a context that ends when the wait is over, or after the limit for a call
// that does not wait.
func bounded(ctx context.Context, o *Options, p Patience, limit time.Duration, fn func(wait context.Context) (*Hold, error)) (*Hold, error) {
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
	return nil, errNoAnswer
}

// level adds a level whose context descends from given, and waits for Redis until ctx is done. The caller has begun the operation.
func (h *Hold) level(given, ctx context.Context, o *Options, mode Mode) (*Hold, error) {
	l := h.lease
	own, cancel := separate(given)
	sent := l.now()
	l.mu.Lock()
	err := h.overLocked()
	if err == nil && mode == Write && !l.exclusiveLocked() {
		err = errs.ErrUpgrade
	}
	if err != nil {
		l.mu.Unlock()
		cancel(nil)
		return nil, err
	}
	inner := l.newHoldLocked(given, o, mode, sent)
	inner.outer = h
	inner.inner, inner.cancel = own, cancel
	levels, length := l.countLocked(), l.longestLocked(sent)
	l.mu.Unlock()

	kept, _, err := l.keep(ctx, levels, length)
	if err == nil && !kept {
		l.Gone()
		err = errs.ErrLost
	}
	switch {
	case err != nil && l.manager.core.Closed() && !l.in(holding): // Close has released it meanwhile
		err = errs.ErrClosed
	case errors.Is(err, errGivenUp):
		err = h.whyOver()
	}
	if err != nil {
		l.abandon(inner, err)
		return nil, err
	}
	follow(given, follower{inner: own, cancel: cancel, within: inner.within})
	return inner, nil
}

// abandon takes back a level that could not be entered.
func (l *Lease) abandon(h *Hold, cause error) {
	l.mu.Lock()
	l.unlinkLocked(h)
	cancel := h.endLocked(cause)
	empty := l.state == holding && l.levels == nil
	open := l.state == holding && l.ops.open(l.now())
	l.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	switch {
	case empty:
		l.manager.soon(l.releaseLater)
	case open:
		l.settleLevels()
	}
}

// releaseLater is for a lease whose last level was taken back: the Unlock of the one around it may have given up waiting for that.
func (l *Lease) releaseLater() {
	ctx, stop := context.WithTimeout(context.Background(), unlockLimit) //nolint:forbidigo // bounded; what cannot be released is settled
	defer stop()
	if ops, err := l.beginOperation(ctx); err == nil {
		defer ops.done()
		_ = l.releaseEmpty(ctx) // nobody asks
	}
}

// unlinkLocked removes a level.
func (l *Lease) unlinkLocked(h *Hold) {
	l.member.Leave()
	for at := &l.levels; *at != nil; at = &(*at).next {
		if *at == h {
			*at = h.next
			return
		}
	}
}

// beginOperation waits until no other operation of a level of this lease is in flight: under one owner id they are sent one
// at a time. Who has it gives it back.
func (l *Lease) beginOperation(ctx context.Context) (*operations, error) {
	l.mu.Lock()
	ops := l.opsLocked()
	l.mu.Unlock()
	select {
	case ops.token <- struct{}{}:
		return ops, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// operations orders the operations of a lease's levels: under one owner id they are sent one at a time. It is apart from the lease
// because few leases have one. But for the token it is guarded by the lease's mu.
type operations struct {
	token chan struct{} // 1: holds a token while an operation is in flight

	strays  time.Duration // until when one that got no reply may still arrive, on the client's clock
	outlast time.Duration // a lease that ends then has more left than the most of any of those
	until   time.Duration // the latest end of the lease that a call has set, or may set

	entry *entry // of the call that acquired the lease, if an earlier attempt of it may still arrive; never changes once it is granted
}

// busy reports whether an operation is in flight.
func (o *operations) busy() bool { return o != nil && len(o.token) > 0 }

// done ends an operation.
func (o *operations) done() { <-o.token }

// opsLocked returns the lease's operations.
func (l *Lease) opsLocked() *operations {
	if l.ops == nil {
		l.ops = &operations{token: make(chan struct{}, 1)}
	}
	return l.ops
}
