package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
	"github.com/redlatch/redlatch/pubsub"
)

// attemptResult is what an attempt came to: a hold, an error, or the time that the lock stays taken, and perhaps why nobody is to wait for it.
type attemptResult struct {
	hold    *lease.Hold
	ttl     time.Duration
	instead error // also that of ctx, if it was granted when ctx was done
	err     error
	passing bool // the error may pass by itself
}

// repeatable reports whether a single attempt may be sent again at once: Redis said that it cannot run it just now.
func (t attemptResult) repeatable() bool {
	return t.passing && script.Judge(t.err) == script.NotDone && !script.Refused(t.err) && !script.Crowded(t.err)
}

// attemptOptions says how one attempt differs from the others of its call.
type attemptOptions struct {
	limit  time.Duration // bound on the wait for the answer; 0 for none
	verify bool          // look at the type of a busy key
	entry  *entry        // of a waiter that Redis knows; nil for others
}

// attempt asks Redis once. What it leaves unknown is being settled when it returns, or is the entry's to settle.
func (n *Name) attempt(ctx context.Context, w *Waiter, o *Options, a attemptOptions) attemptResult {
	m := n.manager
	if !m.core.Admit() {
		return attemptResult{err: errs.ErrClosed}
	}
	defer m.core.End()
	o.asks()
	owner := m.newOwner(o, a.entry)
	l := m.leases.New(n.key, owner)
	sent := m.core.Clock.Now()
	length := l.Register(ctx, o.Term, m.mode, sent)

	call := m.kind.Acquire(AcquireArgs{
		Key: n.key, Owner: owner, Lease: length, From: o.from(), Verify: a.verify, Waits: w != nil, Limit: o.waitLimit(),
		Waited: w.waited(sent),
	})
	call.Confirms = true
	if w != nil && a.limit == 0 && !m.core.Batch.Bounded() {
		a.limit = pipeline.Usual // nothing else ends an attempt that a silent node never answers
	}
	ask := pipeline.SendOptions{Limit: a.limit}
	var given *settle.Abandoned
	switch {
	case a.entry != nil:
		ask.Late = a.entry
	case a.limit > 0 || ctx.Done() != nil: // it may be given up in flight
		given = l.Abandoned(length)
		ask.Late = given
	}
	err := m.core.Batch.Do(ctx, call, ask)
	var reply lease.Reply
	if err == nil {
		reply, err = m.kind.Acquired(call)
	}
	if err != nil {
		l.Unregister()
		return failed(err, func() {
			if o.TakeOver != nil {
				n.Verify() // it may have been taken over from a hold of this client
			}
			switch {
			case a.entry != nil:
				a.entry.entered = true
				a.entry.lost(m.core.Clock.Now() + length + settle.Straggler)
			case given == nil:
				l.Abandoned(length).TakeBack()
			default:
				given.TakeBack()
			}
		})
	}
	if a.entry != nil {
		a.entry.entered = true
	}
	if !reply.Granted {
		l.Unregister()
		return attemptResult{ttl: reply.TTL, instead: reply.Instead}
	}
	if e := a.entry; e != nil && e.unsettled() {
		l.WhenOver(func() { // an attempt that comes late may enter it again
			if e.unsettled() {
				e.leave()
			}
		})
	}
	return n.accept(ctx, w, l, grant{attemptOptions: a, owner: owner, sent: sent, reply: reply, unconfirmed: call.Unconfirmed, options: o})
}

// failed turns the error of an attempt into what it came to. If it may have been granted, or may be later, it calls unknown.
func failed(err error, unknown func()) attemptResult {
	if script.Judge(err) == script.NotDone {
		return attemptResult{err: core.Explain(err), passing: script.Transient(err)}
	}
	unknown()
	return attemptResult{err: err, passing: true}
}

// newOwner returns the owner id of an attempt: a fresh one, or the entry's.
func (m *Manager) newOwner(o *Options, e *entry) any {
	switch {
	case e != nil:
		return e.id
	case m.kind.Sharing == Pool:
		return m.kind.NewOwner(m.core, o.count())
	}
	return m.core.NextOwner()
}

// grant is a yes of Redis.
type grant struct {
	attemptOptions
	owner       any           // under which it was asked
	sent        time.Duration // when that was
	reply       lease.Reply
	unconfirmed error    // why it is not confirmed, where it has to be
	options     *Options // of a call that may ask for several; nil for others
}

// accept makes a lease of what Redis granted, unless it came too late to be of use, or is not confirmed: then it is released again.
func (n *Name) accept(ctx context.Context, w *Waiter, l *lease.Lease, g grant) attemptResult {
	m := n.manager
	if g.options != nil && g.options.TakeOver != nil {
		n.tookOver(*g.options.TakeOver) // whatever becomes of what was granted
	}
	hold, late := l.Granted(g.reply.Token)
	unwanted := ctx.Err() != nil || m.core.Closed() || g.unconfirmed != nil
	if !unwanted && !late {
		var rest []*lease.Lease
		if g.options != nil && g.options.Several != nil {
			rest = n.split(ctx, l, g)
		}
		if n.enter(l, rest, w) {
			return attemptResult{hold: hold}
		}
	}
	l.Unregister()
	l.SetOwner(g.owner) // split has set another one
	switch {
	case g.entry == nil:
		l.SettleRelease(nil)
	case late: // it asks again, and takes over
		g.entry.lost(l.ReleaseUntil())
	default:
		g.entry.unwanted(l.ReleaseUntil())
	}
	switch {
	case g.unconfirmed != nil:
		return attemptResult{err: fmt.Errorf("%w: %w", errs.ErrUnavailable, g.unconfirmed)}
	case late:
		return attemptResult{err: errLate, passing: true}
	case ctx.Err() != nil:
		return attemptResult{instead: ctx.Err()}
	}
	return attemptResult{err: errs.ErrClosed}
}

// errLate is the error of an attempt that was granted when its lease was over already.
var errLate = errors.New("the answer came after the lease had ended")

// enter makes a lease and those granted with it known, and takes its call out of the queue. It returns false if the client
// closes: Close looks at all shards after that has been decided, so that no lease escapes it.
func (n *Name) enter(l *lease.Lease, rest []*lease.Lease, w *Waiter) bool {
	sh := n.manager.shard(n.text())
	sh.mu.Lock()
	if n.manager.core.Closed() {
		sh.mu.Unlock()
		for _, other := range rest {
			other.Unregister()
		}
		return false
	}
	l.Begin()
	if older := sh.held[n.text()]; older != nil && !n.manager.kind.shared() {
		older.Verify() // granted although this client has the lock: it was taken away
	}
	n.manager.addLocked(sh, l)
	for _, other := range rest {
		other.Begin()
		n.manager.addLocked(sh, other)
	}
	if w == nil {
		sh.mu.Unlock()
		return true
	}
	// While the call asked, a hold may have been handed on to it, which took it out of the queue. That lease has been lost since, or Redis
	// would not have granted this one.
	handed := w.hold
	w.hold = nil
	var left *pubsub.Membership
	if handed == nil {
		w.queue.Granted(l.Since())
		left = w.leaveLocked()
		w.queue.sharedLocked()
	}
	sh.mu.Unlock()
	w.queue.left(left)
	if handed != nil {
		handed.Pass()
	}
	return true
}

// split makes a lease of each owner id that a call was granted together. The first one is the call's own.
func (n *Name) split(ctx context.Context, l *lease.Lease, g grant) []*lease.Lease {
	several := g.options.Several
	owners := n.manager.kind.Split(g.owner)
	l.SetOwner(owners[0])
	rest := make([]*lease.Lease, 0, len(owners)-1)
	several.Rest = make([]*lease.Hold, 0, len(owners)-1)
	for _, owner := range owners[1:] {
		other := n.manager.leases.New(n.key, owner)
		other.Register(ctx, g.options.Term, n.manager.mode, g.sent)
		rest, several.Rest = append(rest, other), append(several.Rest, other.GrantedWith(l))
	}
	return rest
}
