package locker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// This file serves locks that are made of others: one call of theirs attempts several locks at the same time. What came
// of it is reported later, on a goroutine that must not be held up, or before the function returns.

// AttemptAll sends an attempt for each of the names, those of one client in one pipeline. An attempt neither nests nor waits. The
// options must be valid.
//
// report gets the position of the name and the hold, or an error: ErrNotAcquired if the lock is taken. What an error leaves unknown is
// being settled. A client that closes meanwhile may never report. The result is nil for what was not sent.
func AttemptAll(ctx context.Context, names []*Name, o *Options, report func(i int, h *lease.Hold, err error)) []*Attempt {
	attempts := make([]*Attempt, len(names))
	var out pipeline.Outbox
	for i, n := range names {
		a, err := n.prepare(ctx, o)
		if err != nil {
			report(i, nil, err)
			continue
		}
		a.report = func(h *lease.Hold, err error) { report(i, h, err) }
		attempts[i] = a
		out.Add(n.manager.core.Batch, a.call, a.answered, a.refused)
	}
	out.Send(pipeline.Normal)
	return attempts
}

// Attempt is a call in flight that acquires one lock.
type Attempt struct {
	name         *Name
	ctx          context.Context //nolint:containedctx // the hold's, if it is granted
	lease        *lease.Lease
	owner        any
	sent, length time.Duration
	call         *script.Call
	report       func(*lease.Hold, error)
	abandoned    *settle.Abandoned // what becomes of it if it is given up

	mu   sync.Mutex  // guards the rest
	over bool        // answered or given up
	stop func() bool // has Close not give it up any more
}

// prepare makes an attempt that is to be sent.
func (n *Name) prepare(ctx context.Context, o *Options) (*Attempt, error) {
	m := n.manager
	switch {
	case n.Check() != nil:
		return nil, n.Check()
	case m.core.Closed():
		return nil, errs.ErrClosed
	case n.TakenHere():
		return nil, errs.ErrNotAcquired
	case !m.core.Admit():
		return nil, errs.ErrClosed
	}
	o.asks()
	owner := m.newOwner(o, nil)
	l := m.leases.New(n.key, owner)
	a := &Attempt{name: n, ctx: ctx, lease: l, owner: owner, sent: m.core.Clock.Now()}
	a.length = l.Register(ctx, o.Term, m.mode, a.sent)
	a.abandoned = l.Abandoned(a.length)
	a.call = m.kind.Acquire(AcquireArgs{Key: n.key, Owner: owner, Lease: a.length, Verify: true})
	a.call.Confirms = true
	a.mu.Lock()
	a.stop = m.core.Batch.AfterWaits(a.GiveUp)
	a.mu.Unlock()
	return a, nil
}

// GiveUp has the lock released that the attempt may acquire: its answer may be long in coming, and is reported only if it is an error. It
// does nothing once the answer has come. A nil attempt is one that was not sent.
func (a *Attempt) GiveUp() {
	if a == nil {
		return
	}
	e := a.name.manager.core
	e.Begin() // until the settler has it, also if the answer comes meanwhile
	defer e.End()
	if !a.end() {
		return
	}
	a.lease.Unregister()
	a.abandoned.TakeBack()
}

// end reports whether it was the first to end the attempt.
func (a *Attempt) end() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.over
	if first {
		a.over = true
		a.stop()
	}
	return first
}

// refused ends an attempt that was not sent.
func (a *Attempt) refused() {
	defer a.name.manager.core.End()
	if !a.end() {
		return
	}
	a.lease.Unregister()
	a.report(nil, errs.ErrClosed)
}

// answered takes the answer, and settles what was given up.
func (a *Attempt) answered(c *script.Call) {
	defer a.name.manager.core.End()
	if !a.end() {
		a.abandoned.Late(c)
		if err := c.Err(); err != nil {
			a.report(nil, core.Explain(err))
		}
		return
	}
	a.report(a.result(c))
}

// result makes a hold of a yes, and settles what is not known.
func (a *Attempt) result(c *script.Call) (*lease.Hold, error) {
	l, m := a.lease, a.name.manager
	reply, err := lease.Reply{}, c.Err()
	if err == nil {
		reply, err = m.kind.Acquired(c)
	}
	if err != nil {
		l.Unregister()
		return nil, core.Judged(failed(err, a.abandoned.TakeBack).err)
	}
	if !reply.Granted {
		l.Unregister()
		return nil, errs.ErrNotAcquired
	}
	t := a.name.accept(a.ctx, nil, l, grant{owner: a.owner, sent: a.sent, reply: reply, unconfirmed: c.Unconfirmed})
	return t.hold, cmp.Or(t.err, t.instead)
}
