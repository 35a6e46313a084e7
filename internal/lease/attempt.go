package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
	"github.com/redlatch/redlatch/pubsub"
)

// attemptResult is what an attempt came to: a hold, an error, or the time that the lock stays taken.
type attemptResult struct {
	hold    *Hold
	ttl     time.Duration
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
	s := n.manager
	if !s.core.Admit() {
		return attemptResult{err: errs.ErrClosed}
	}
	defer s.core.End()
	owner := s.newOwner(o, a.entry)
	l := s.newLease(n.key, owner)
	sent := s.core.Clock.Now()
	length := l.register(ctx, o, sent)

	call := s.kind.Acquire(Ask{
		Key: n.key, Owner: owner, Lease: length, From: o.from(), Verify: a.verify, Waits: w != nil, Limit: o.waitLimit(),
	})
	ask := pipeline.Ask{Limit: a.limit, Usual: w == nil && a.limit >= pipeline.Usual}
	var given *settle.Abandoned
	switch {
	case a.entry != nil:
		ask.Late = a.entry
	case a.limit > 0 || ctx.Done() != nil: // it may be given up in flight
		given = l.abandoned(length)
		ask.Late = given
	}
	err := s.core.Batch.Do(ctx, call, ask)
	var reply Reply
	if err == nil {
		reply, err = s.kind.Acquired(call)
	}
	if err != nil {
		l.unregister()
		return failed(err, func() {
			switch {
			case a.entry != nil:
				a.entry.entered = true
				a.entry.lost(s.core.Clock.Now() + length + settle.Straggler)
			case given == nil:
				l.abandoned(length).TakeBack()
			default:
				given.TakeBack()
			}
		})
	}
	if a.entry != nil {
		a.entry.entered = true
	}
	if !reply.Granted {
		l.unregister()
		return attemptResult{ttl: reply.TTL}
	}
	if a.entry.unsettled() {
		l.opsLocked().entry = a.entry // nobody else knows the lease
	}
	return n.accept(ctx, w, l, grant{attemptOptions: a, sent: sent, reply: reply, options: o})
}

// failed turns the error of an attempt into what it came to. If it may have been granted, or may be later, it calls unknown.
func failed(err error, unknown func()) attemptResult {
	if script.Judge(err) == script.NotDone {
		return attemptResult{err: core.Explain(err), passing: script.Transient(err)}
	}
	unknown()
	return attemptResult{err: err, passing: true}
}

// abandoned returns the attempt that asked for the lease, as a call that is given up.
func (l *Lease) abandoned(length time.Duration) *settle.Abandoned {
	return &settle.Abandoned{Settler: l.manager.core.Settler, Taker: l, For: length}
}

// Took reports whether an attempt was granted the lease.
func (l *Lease) Took(c *script.Call) bool {
	reply, err := l.manager.kind.Acquired(c)
	return err == nil && reply.Granted
}

// GiveBack returns the call that releases the lease.
func (l *Lease) GiveBack() *script.Call { return l.manager.kind.Release(l.key, l.owner) }

// GaveBack reports whether it released anything.
func (l *Lease) GaveBack(c *script.Call) bool {
	n, err := l.manager.receivers(c)
	return err == nil && n > 0
}

// newOwner returns the owner id of an attempt: a fresh one, or the entry's.
func (s *Manager) newOwner(o *Options, e *entry) any {
	switch {
	case e != nil:
		return e.id
	case s.kind.Sharing == Pool:
		return s.kind.NewOwner(o.count())
	}
	return s.core.NextOwner()
}

// grant is a yes of Redis.
type grant struct {
	attemptOptions
	sent    time.Duration // when it was asked
	reply   Reply
	options *Options // of a call that may ask for several; nil for others
}

// accept makes a lease of what Redis granted, unless it came too late to be of use.
func (n *Name) accept(ctx context.Context, w *Waiter, l *Lease, g grant) attemptResult {
	s := n.manager
	l.token, l.since = g.reply.Token, s.core.Clock.Now()
	unwanted := ctx.Err() != nil || s.core.Closed() // not under the mutex: ctx may be another hold's
	l.mu.Lock()
	hold := l.levels
	late := l.since >= hold.deadlineLocked()
	l.mu.Unlock()
	owner := l.owner // split sets another one
	if !unwanted && !late && n.enter(l, n.split(ctx, l, g), w) {
		return attemptResult{hold: hold}
	}
	l.unregister()
	l.owner = owner
	switch {
	case g.entry == nil:
		l.settleRelease(nil)
	case late: // it asks again, and takes over
		g.entry.lost(l.releaseUntil())
	default:
		g.entry.unwanted(l.releaseUntil())
	}
	switch {
	case late:
		return attemptResult{err: errLate, passing: true}
	case ctx.Err() != nil:
		return attemptResult{err: ctx.Err()}
	}
	return attemptResult{err: errs.ErrClosed}
}

// errLate is the error of an attempt that was granted when its lease was over already.
var errLate = errors.New("the answer came after the lease had ended")

// enter makes a lease and those granted with it known, and takes its call out of the queue. It returns false if the client
// closes: Close looks at all shards after that has been decided, so that no lease escapes it.
func (n *Name) enter(l *Lease, rest []*Lease, w *Waiter) bool {
	sh := n.manager.shard(n.text())
	sh.mu.Lock()
	if n.manager.core.Closed() {
		sh.mu.Unlock()
		for _, other := range rest {
			other.unregister()
		}
		return false
	}
	l.begin()
	if older := sh.held[n.text()]; older != nil && !n.manager.kind.shared() {
		older.recheck() // granted although this client has the lock: it was taken away
	}
	n.manager.addLocked(sh, l)
	for _, other := range rest {
		other.begin()
		n.manager.addLocked(sh, other)
	}
	if w == nil {
		sh.mu.Unlock()
		return true
	}
	handed := w.hold // only if the lease that was handed on has been lost since
	w.hold = nil
	var left *pubsub.Membership
	if handed == nil {
		w.queue.Granted(l.since)
		left = w.leaveLocked()
		w.queue.sharedLocked()
	}
	sh.mu.Unlock()
	w.queue.left(left)
	if handed != nil {
		handed.pass()
	}
	return true
}

// begin has a lease that was granted hold. The caller holds the shard's mu.
func (l *Lease) begin() {
	l.mu.Lock()
	l.state = holding
	l.ArmLocked()
	l.mu.Unlock()
}

// split makes a lease of each owner id that a call was granted together. The first one is the call's own.
func (n *Name) split(ctx context.Context, l *Lease, g grant) []*Lease {
	if g.options == nil || g.options.Several == nil {
		return nil
	}
	several := g.options.Several
	owners := n.manager.kind.Split(l.owner)
	l.owner = owners[0] // nobody else looks at it before it holds
	rest := make([]*Lease, 0, len(owners)-1)
	several.Rest = make([]*Hold, 0, len(owners)-1)
	for _, owner := range owners[1:] {
		other := n.manager.newLease(n.key, owner)
		other.since = l.since
		other.register(ctx, g.options, g.sent)
		rest, several.Rest = append(rest, other), append(several.Rest, other.levels)
	}
	return rest
}
