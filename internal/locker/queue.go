package locker

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/pubsub"
)

// The messages of locks that one holder has alone, as Redisson has them.
const (
	unlocked        = "0"
	readersMayEnter = "1" // a writer has left, or gave up waiting
)

// staleEcho is how late the message of a release may arrive.
const staleEcho = 100 * time.Millisecond

var _ pubsub.Listener = (*queue)(nil)

// queue is the wait queue of one client for one name, and its subscription. It is guarded by its shard's mu, and exists while somebody
// waits.
//
// Where Redis orders the waiters, each is alone in a queue that the shard does not list. It asks at once, no hold is handed to it, and
// Redis notifies it of releases, also those of this client.
type queue struct {
	waitqueue.Queue
	manager   *Manager // of the waiter that opened the queue: plain and fenced locks of one name share it
	shard     *shard
	key       string
	first     Waiter             // room for the one who opens the queue
	member    *pubsub.Membership // of the channel that announces releases; nil until somebody had to wait for Redis
	joining   bool               // somebody joins, or has joined, the channel
	watched   *lease.Lease       // the holder in this client that the head waits for
	watchedAt time.Duration      // when to look whether it still holds
}

// Waiter is a call that waits for a lock.
type Waiter struct {
	waitqueue.Waiter
	queue   *queue
	manager *Manager
	ctx     context.Context //nolint:containedctx // of the call that waits
	options *Options
	hold    *lease.Hold   // handed on by the hold before
	entry   any           // the id under which Redis knows the waiter; nil for kinds that do not tell it
	lastErr error         // of the upkeep's last question; nil for one that was answered
	failed  error         // ends the wait: its upkeep had no reply for a lease, or another call was given the answer for all
	asked   time.Duration // when it last asked
	since   time.Duration // when it began to wait; 0 before
}

// joinLocked puts a call at the end of the queue of its name.
func (n *Name) joinLocked(ctx context.Context, sh *shard, o *Options) *Waiter {
	queues := n.manager.queuesOf(sh)
	q, w := queues[n.text()], (*Waiter)(nil)
	if q == nil {
		q = &queue{manager: n.manager, shard: sh, key: n.text()}
		q.Shared = n.manager.kind.shared()
		if !n.manager.kind.ordersWaiters() {
			queues[n.text()] = q
		}
		w = &q.first
	} else {
		w = &Waiter{}
	}
	*w = Waiter{queue: q, manager: n.manager, ctx: ctx, options: o}
	w.Call, w.Wants = w, o.count()
	q.Join(&w.Waiter)
	if o.TakeOver != nil || n.manager.kind.shared() && !q.Refused {
		w.AdmittedAt = 0
	}
	return w
}

// waited returns for how long the call has waited; 0 for one that does not. Only the call itself changes that.
func (w *Waiter) waited(now time.Duration) time.Duration {
	if w == nil || w.since == 0 {
		return 0
	}
	return now - w.since
}

// leaveLocked takes a call out of its queue. The result is to be left, without the mutex, if it is not nil.
func (w *Waiter) leaveLocked() *pubsub.Membership {
	q := w.queue
	if u := q.manager.kind.Upkeep; u != nil {
		u.Left(w)
		delete(q.shard.alone, w)
	}
	q.Leave(&w.Waiter)
	if !q.Empty() {
		return nil
	}
	if queues := q.manager.queuesOf(q.shard); queues[q.key] == q {
		delete(queues, q.key)
	}
	return q.member
}

// leave takes a call out of its queue.
func (w *Waiter) leave() *lease.Hold {
	q := w.queue
	q.shard.mu.Lock()
	hold := w.hold
	var member *pubsub.Membership
	if hold == nil {
		first := q.Head() == &w.Waiter
		member = w.leaveLocked()
		if first && w.options.count() > 1 { // who comes next may want no more than there is
			q.Resume(q.now())
		}
	}
	q.shard.mu.Unlock()
	q.left(member)
	return hold
}

func (q *queue) now() time.Duration { return q.manager.core.Clock.Now() }

// channel is where the waiter, or the queue for which it joins, is woken.
func (w *Waiter) channel() string {
	if u := w.manager.kind.Upkeep; u != nil {
		entry, _ := w.entry.(string)
		return u.Channel(w.queue.key, entry)
	}
	return w.manager.kind.Channel(w.queue.key)
}

// left gives up the subscription of a queue that is empty.
func (q *queue) left(member *pubsub.Membership) {
	if member == nil {
		return
	}
	member.Leave()
	if !q.manager.kind.ordersWaiters() {
		q.manager.core.Waiting.Add(-1)
	}
}

// sleep returns the channel by which a call is woken; nil if something has changed already.
func (w *Waiter) sleep() <-chan struct{} {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	if w.hold != nil {
		return nil
	}
	if w.since == 0 {
		w.since = max(w.queue.now(), 1)
		if w.manager.kind.ordersWaiters() {
			w.queue.shard.alone[w] = struct{}{}
		}
	}
	return w.Woken()
}

// Subscribed has the head ask again: what was announced before the subscription was confirmed has not been received.
func (q *queue) Subscribed() {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	q.Listening = true
	switch u := q.manager.kind.Upkeep; {
	case u == nil:
		q.Resume(q.now())
	case !q.Empty():
		u.Listening(&q.first)
	}
}

// Message has the head ask again after a release.
func (q *queue) Message(payload string) {
	permits := 1
	switch {
	case q.manager.kind.shared():
		permits = q.manager.kind.Permits(payload)
	case payload != unlocked && payload != readersMayEnter:
		permits = 0
	}
	if permits <= 0 {
		return
	}
	q.manager.core.Events.Woken(q.manager.kind.Name, q.manager.kind.User(q.manager.core, q.key))
	now := q.now()
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if q.Empty() {
		return
	}
	if holder := q.holderLocked(); holder != nil && now-holder.Since() > staleEcho {
		holder.Verify() // a release although this client has the lock: it was taken away
	}
	q.Notify(now, permits)
}

// holderLocked returns the lease of this client for which the queue waits, if there is one.
func (q *queue) holderLocked() *lease.Lease {
	if q.manager.kind.shared() || q.manager.kind.ordersWaiters() {
		return nil
	}
	return q.shard.held[q.key]
}

// resumeLocked has the head ask Redis now. A nil queue is one without waiters.
func (q *queue) resumeLocked(now time.Duration) {
	if q != nil {
		q.Resume(now)
	}
}

// admitLocked lets all waiters of those who share ask Redis now. A nil queue is one without waiters.
func (q *queue) admitLocked(now time.Duration) {
	if q != nil {
		q.Admit(now)
	}
}

// sharedLocked has the queue go on after a waiter of it was granted a share: where one is granted all are, until Redis refuses one.
func (q *queue) sharedLocked() {
	if q.manager.kind.Sharing != Readers || !q.Refused {
		return
	}
	q.Refused = false
	q.Admit(q.now())
}

// busyLocked sets when to ask again after the head found the lock taken, for ttl if that is known.
func (q *queue) busyLocked(w *Waiter, wakeups uint64, ttl time.Duration) {
	next := waitqueue.Never
	if u := q.manager.kind.Upkeep; u != nil {
		u.Refused(w, ttl)
	} else {
		now := q.now()
		w.warnOfSharesLocked(now)
		next = now + waitqueue.Pause(waitqueue.Recheck, q.manager.core.Waiting.Load())
		if ttl >= 0 {
			next = min(next, now+ttl+time.Millisecond)
		}
	}
	if q.Busy(&w.Waiter, wakeups, next) {
		q.TenureOver()
	}
}

// watchLocked has a holder in this client looked at from time to time while somebody waits for it: its lock may have been
// taken away in Redis. It returns when to look again.
func (w *Waiter) watchLocked(holder *lease.Lease) time.Duration {
	q := w.queue
	now := q.now()
	if q.watched != holder {
		q.watched, q.watchedAt = holder, now+core.Jitter(waitqueue.Recheck)
	}
	if now >= q.watchedAt {
		q.watchedAt = now + core.Jitter(waitqueue.Recheck)
		holder.Verify()
		w.warnLocked(holder)
	}
	return q.watchedAt - now
}

// selfWait is how long a call waits for a hold of its own client until that is logged.
const selfWait = 5 * time.Second

// waitsForItself reports whether a call that began to wait at one time for a hold of its own client of another time is to be logged.
func waitsForItself(now, waits, held time.Duration) bool {
	return waits > 0 && now-max(waits, held) >= selfWait
}

// warnLocked logs, once for each hold, that a call has waited long for a hold of its own client: it may wait for itself.
func (w *Waiter) warnLocked(holder *lease.Lease) {
	now := w.queue.now()
	if !waitsForItself(now, w.since, holder.Since()) || !holder.FirstWarning() {
		return
	}
	info, held := holder.Report()
	if held {
		c, waited := w.manager.core, now-w.since
		c.Workers.Go(func() { // not under the mutex
			c.Logger.Warn("redlatch: a call waits for a lock that this client holds; only a call under the hold's context nests",
				"kind", info.Kind, "name", info.Name, "owner", info.Owner, "waited", waited)
		})
	}
}

// warnOfSharesLocked does so for a lock that this client holds in another mode.
func (w *Waiter) warnOfSharesLocked(now time.Duration) {
	if w.manager.kind.Sharing == Pool || !waitsForItself(now, w.since, 0) {
		return
	}
	for _, l := range w.queue.shard.leasesLocked(w.queue.key, nil) {
		w.warnLocked(l)
	}
}

// step is what a waiter is to do next.
type step uint8

const (
	stepWait step = iota
	stepAsk
	stepHeld // the hold was handed on
	stepFail // with the waiter's failure
)

// nextStep returns what a waiter is to do, and how long it is to wait at most.
func (w *Waiter) nextStep() (step, time.Duration) {
	q := w.queue
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	switch {
	case w.hold != nil:
		return stepHeld, 0
	case w.failed != nil:
		return stepFail, 0
	}
	now := q.now()
	if holder := q.holderLocked(); holder != nil && q.Head() == &w.Waiter && w.AdmittedAt > now {
		return stepWait, min(w.watchLocked(holder), w.AdmittedAt-now) // it will hand on, release, or be lost: each of these wakes the queue
	}
	if next, left := w.Next(now); next == waitqueue.Wait {
		return stepWait, left
	}
	return stepAsk, 0
}
