package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Nest adds a level to the lease of a live hold, whose context descends from given. It waits for Redis until ctx is done. A level of
// reading may nest in one of writing, and may outlive it: the downgrade. The other way round it is [errs.ErrUpgrade], since the call
// would wait for its own caller.
func (h *Hold) Nest(given, ctx context.Context, t Term, mode Mode) (*Hold, error) {
	ops, err := h.lease.beginOperation(ctx)
	if err != nil {
		return nil, err
	}
	defer ops.done()
	return h.level(given, ctx, t, mode)
}

// Exclusive reports whether nobody but the holder of the lease may hold the lock.
func (h *Hold) Exclusive() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.lease.exclusiveLocked()
}

func (l *Lease) exclusiveLocked() bool { return l.countLocked().Write > 0 }

// level adds a level whose context descends from given, and waits for Redis until ctx is done. The caller has begun the operation.
func (h *Hold) level(given, ctx context.Context, t Term, mode Mode) (*Hold, error) {
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
	inner := l.newHoldLocked(given, t, mode, sent)
	inner.outer = h
	inner.inner, inner.cancel = own, cancel
	levels, length := l.countLocked(), l.longestLocked(sent)
	l.mu.Unlock()

	kept, _, err := l.keep(ctx, levels, length)
	if err == nil && !kept {
		l.Gone()
		err = errs.ErrLost
	}
	if err == nil {
		l.expire(l.now()) // the answer may have come after its lease
		l.mu.Lock()
		err = inner.overLocked()
		l.mu.Unlock()
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
	open := l.state == holding && (errors.Is(cause, errs.ErrUnknown) || l.ops.open(l.now())) // it may have run, or arrive yet
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
	if l.state == holding { // once it is over the site is read without the mutex
		l.endingLocked(h)
	}
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

	renewed time.Duration // what renewals of the lease set; 0 for the client's lease

	over func() // what to call when the lease is over; nil for nothing. Never changes once the lease is granted

	release func() *script.Call // in place of the kind's Release; nil for that one. Guarded by the lease's mu
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
