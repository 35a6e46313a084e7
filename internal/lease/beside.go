package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Some names have two kinds of lease in one registry: shared ones, and those that somebody has alone. Who has the lock
// alone may share it as well, and then give up the former: a share is taken beside his lease, under its owner id and past
// all who wait. It is a lease of its own, with its own levels and its own end, that takes its turns with the other one.

// NewSpaceBeside returns the space of the shares that are taken beside leases of another kind. Its Acquire grants one only
// to an owner who has the lock, and may run twice; its Leave and its Release are one.
func NewSpaceBeside(r *Registry, kind Queued) *Space {
	s := NewSpace(r, kind)
	s.beside = true
	return s
}

// kindKey is the key under which a context is searched for a hold of the name's own kind.
type kindKey struct {
	space *Space
	key   any
}

// AcquireAlone is Acquire for leases that nobody shares: under a share that does not stand beside one it is
// [errs.ErrUpgrade], since the call would wait for its own caller.
func (n *Name) AcquireAlone(ctx context.Context, o *Options, single bool) (*Hold, error) {
	if err := n.check(ctx, o); err != nil {
		return nil, err
	}
	own, outer := n.OwnHoldOf(ctx), n.HoldOf(ctx)
	if own == nil && outer != nil {
		return nil, errs.ErrUpgrade
	}
	return n.acquire(ctx, o, single, lineage{in: own, outer: outer})
}

// AcquireShare is Acquire for leases that many share: under one that its holder has alone, the share is taken beside it,
// with the name of the space for that.
func (n *Name) AcquireShare(ctx context.Context, o *Options, single bool, beside *Name) (*Hold, error) {
	if err := n.check(ctx, o); err != nil {
		return nil, err
	}
	outer := n.HoldOf(ctx)
	if outer == nil || outer.lease.space.shared != nil {
		return n.acquire(ctx, o, single, lineage{in: outer, outer: outer})
	}
	if o.NoNest {
		return nil, errs.ErrHeld
	}
	return bounded(ctx, o, single, func(wait context.Context) (*Hold, error) {
		for try := 0; ; try++ {
			hold, err := beside.share(ctx, wait, o, outer)
			if hold != nil || err != nil {
				return hold, err
			}
			if pause(wait, try) != nil { // the share before is being released, or settled
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				return nil, errs.ErrNotAcquired
			}
		}
	})
}

// share takes a share beside the lease of a hold, or adds a level to the one that is there. It waits for Redis until ctx is
// done; the hold descends from given. It returns neither a hold nor an error if it is to be called again.
func (n *Name) share(given, ctx context.Context, o *Options, h *Hold) (*Hold, error) {
	l := h.lease
	if !n.space.core.Admit() {
		return nil, errs.ErrClosed
	}
	defer n.space.core.End() // whoever gives up has left by then
	turn, err := l.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.give()
	l.mu.Lock()
	if err = h.overLocked(); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.doubled = true // from here on its owner id is not handed on
	l.mu.Unlock()
	if share := l.share(); share != nil {
		if in := share.anyLevel(); in != nil {
			hold, err := lineage{in: in, outer: h}.level(given, ctx, o)
			if errors.Is(err, errs.ErrNotHeld) && h.live() { // that level was just unlocked
				return nil, nil //nolint:nilnil // as documented
			}
			return hold, err
		}
	}
	started := l.now()
	if time.Duration(turn.shared.Load()) > started {
		return nil, nil //nolint:nilnil // as documented
	}
	turn.shared.Store(int64(never))
	p := &stand{space: n.space, name: *n, owner: l.owner, limit: o.waitLimit(), turn: turn}
	hold, err := n.shareAs(given, ctx, o, attempt{stand: p, turn: turn})
	if err != nil {
		p.leave()
		return nil, err
	}
	if hold == nil { // Redis does not know the lease any more
		p.leave()
		l.gone()
		return nil, errs.ErrLost
	}
	hold.standBeside(given, h)
	n.tellAcquired(started)
	return hold, nil
}

// shareAs asks for a share until it is answered: it returns no hold if it was refused.
func (n *Name) shareAs(given, ctx context.Context, o *Options, a attempt) (*Hold, error) {
	e := n.space.core
	deadline := e.Clock.Now() + e.Lease
	for try := 0; ; try++ {
		limit := deadline - e.Clock.Now()
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end))
		}
		a.limit = max(limit, time.Millisecond)
		t := n.try(given, nil, o, a)
		if t.hold != nil || t.err == nil {
			return t.hold, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !t.passing || e.Closed() || e.Clock.Now() >= deadline {
			return nil, unknown(t.err)
		}
		if script.Judge(t.err) == script.NotDone && script.Refused(t.err) {
			return nil, t.err
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// standBeside makes a share's first level one that is nested in a hold, beside whose lease it stands.
func (h *Hold) standBeside(given context.Context, outer *Hold) {
	own, cancel := separate(given)
	l := h.lease
	l.mu.Lock()
	h.outer = outer
	cause := h.cause
	if cause == nil {
		h.inner, h.cancel = own, cancel
	}
	turn := l.turn
	l.mu.Unlock()
	outer.lease.mu.Lock()
	turn.share = l
	outer.lease.mu.Unlock()
	if cause != nil { // lost already
		cancel(cause)
		return
	}
	follow(given, follower{inner: own, cancel: cancel, within: h.within})
}

// share returns the lease that was last taken beside this one; nil if there was none.
func (l *Lease) share() *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn == nil || l.space.beside {
		return nil
	}
	return l.turn.share
}

// anyLevel returns a live level; nil if there is none.
func (l *Lease) anyLevel() *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != holding {
		return nil
	}
	return l.levels
}
