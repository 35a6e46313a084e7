package lease

import (
	"container/list"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	recheck      = time.Second            // a head waiter asks again at least this often, jittered
	recheckRate  = 500                    // re-checks a second of one client, above which they become rarer
	shortestTurn = time.Millisecond       // of a client whose waiters follow one another
	staleEcho    = 100 * time.Millisecond // how late a release may be heard
	longestRest  = 20 * time.Millisecond  // after a turn
)

// line is where the waiters of one client for one name stand. Its head alone asks Redis, and whoever else is free to.
// Where each waiter is woken alone, each has a line of its own. It is guarded by its shard's mu, and exists while
// somebody stands in it.
type line struct {
	space  *Space
	shard  *shard
	key    string
	head   *waiter
	tail   *waiter
	first  waiter             // room for the one who opens the line
	member *pubsub.Membership // of the channel that announces releases; nil until somebody had to wait for Redis

	joining   bool          // somebody joins, or has joined, the channel
	refused   bool          // somebody was refused: who comes now has to stand in line
	confirmed bool          // the subscription stands: releases will be heard
	tryAt     time.Duration // when the head is to ask Redis
	asked     time.Duration // when the try in flight was sent; 0 for none
	answered  bool          // a try was
	lastErr   error         // of the last try; nil for one that was answered
	wakes     uint64        // wake-ups so far
	wokenAt   time.Duration
	gap       time.Duration // between two releases, smoothed
	watched   *Lease        // the holder in this client that the head waits for
	watchAt   time.Duration // when to look whether it still holds
	turnAt    time.Duration // when this client's turn began; 0 outside of one
	restUntil time.Duration // until when it is the others' turn
}

// waiter is a call that stands in a line.
type waiter struct {
	line       *line
	prev, next *waiter
	space      *Space
	ctx        context.Context //nolint:containedctx // of the call that waits
	options    *Options
	wake       chan struct{} // 1: something has changed; made when the call first sleeps
	woken      bool          // something changed before wake was made
	hold       *Hold         // handed on by the hold before
	entry      any           // the id under which Redis knows the waiter; nil for kinds that do not tell it
	free       bool          // may ask although it is not the head
	patrol     *patrol       // that looks after it; nil unless it stands in Redis's queue to be woken alone
	place      *list.Element // in the patrol's list
	asks       uint64        // tries so far
	trying     bool          // one is under way
	lastErr    error         // of the patrol, while it has no answer
	lostTouch  bool          // the patrol has had no answer for a lease
}

// joinLocked puts a call at the end of the line of its name.
func (n *Name) joinLocked(ctx context.Context, sh *shard, o *Options) *waiter {
	lines := n.space.linesOf(sh)
	l, w := lines[n.text()], (*waiter)(nil)
	if l == nil {
		l = &line{space: n.space, shard: sh, key: n.text()}
		if n.space.apart == nil {
			lines[n.text()] = l
		}
		w = &l.first
	} else {
		w = &waiter{}
	}
	*w = waiter{line: l, space: n.space, ctx: ctx, options: o, prev: l.tail, free: o.TakeOver != nil || n.space.shared != nil && !l.refused}
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	return w
}

// leaveLocked takes a call out of its line and lets the next one be the head. The result is to be left, without the
// mutex, if it is not nil.
func (w *waiter) leaveLocked() *pubsub.Membership {
	l := w.line
	w.patrol.removeLocked(w)
	first := l.head == w
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	if l.head == nil {
		if lines := l.space.linesOf(l.shard); lines[l.key] == l {
			delete(lines, l.key)
		}
		return l.member
	}
	if first {
		if l.tryAt == never { // it left during a try: the next one has to make its own
			l.tryAt = 0
		}
		l.head.signalLocked()
	}
	return nil
}

// leave takes a call out of its line. A wake-up that it had not used is the next one's: it belongs to the line.
func (w *waiter) leave() *Hold {
	w.line.shard.mu.Lock()
	hold := w.hold
	var member *pubsub.Membership
	if hold == nil {
		l, first := w.line, w.line.head == w
		member = w.leaveLocked()
		if first && w.options.count() > 1 { // who comes next may want no more than there is
			l.resumeLocked(l.space.core.Clock.Now())
		}
	}
	w.line.shard.mu.Unlock()
	w.line.left(member)
	return hold
}

// channel is where the waiter, or the line for which it joins, is woken.
func (w *waiter) channel() string {
	if apart := w.space.apart; apart != nil {
		entry, _ := w.entry.(string)
		return apart.ChannelOf(w.line.key, entry)
	}
	return w.space.kind.Channel(w.line.key)
}

// left gives up the subscription of a line that is empty.
func (l *line) left(member *pubsub.Membership) {
	if member == nil {
		return
	}
	member.Leave()
	if l.space.apart == nil {
		l.space.core.Waiting.Add(-1)
	}
}

// signalLocked has the call look again.
func (w *waiter) signalLocked() {
	if w.wake == nil {
		w.woken = true
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // a token is there already
	}
}

// awake returns the channel by which a call is woken; nil if something has changed already.
func (w *waiter) awake() <-chan struct{} {
	w.line.shard.mu.Lock()
	defer w.line.shard.mu.Unlock()
	if w.woken || w.hold != nil {
		w.woken = false
		return nil
	}
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	return w.wake
}

// Subscribed has the head ask again: what was announced before the subscription stood has not been heard.
func (l *line) Subscribed() {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	l.confirmed = true
	if l.space.apart != nil {
		l.askAfterLocked()
		return
	}
	l.resumeLocked(l.space.core.Clock.Now())
}

// Message has the head ask again after a release.
func (l *line) Message(payload string) {
	heads := 1
	switch shared := l.space.shared; {
	case shared != nil:
		heads = shared.Heads(payload)
	case payload != "0" && payload != "1":
		heads = 0
	}
	if heads <= 0 {
		return
	}
	if f := l.space.core.Hooks.Woken; f != nil {
		f(l.space.kind.Title(), l.space.core.UserName(l.key))
	}
	now := l.space.core.Clock.Now()
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if l.head == nil {
		return
	}
	if holder := l.holderLocked(); holder != nil && now-holder.since > staleEcho {
		holder.recheck() // a release although this client has the lock: it was taken away
	}
	if since := now - l.wokenAt; l.wokenAt != 0 {
		l.gap += (since - l.gap) / 8
	}
	l.wokenAt = now
	l.wakes++
	l.tryAt = min(l.tryAt, max(now, l.restUntil))
	for w := l.head; w != nil && heads > 0; w = w.next {
		heads -= w.options.count() // one that wants more than there is keeps those behind it from overtaking
		w.free = l.space.shared != nil
		w.signalLocked()
	}
}

// holderLocked returns the lease of this client for which the line waits, if there is one.
func (l *line) holderLocked() *Lease {
	if l.space.shared != nil || l.space.apart != nil {
		return nil
	}
	if holder := l.shard.held[l.key]; holder != nil && !holder.freed {
		return holder
	}
	return nil
}

// resumeLocked has the head ask Redis now. A nil line is one without waiters.
func (l *line) resumeLocked(now time.Duration) {
	if l == nil || l.head == nil {
		return
	}
	l.wakes++
	l.tryAt = now
	l.head.signalLocked()
}

// openLocked lets all who stand in a line of those who share ask Redis now. A nil line is one without waiters.
func (l *line) openLocked(now time.Duration) {
	if l == nil {
		return
	}
	l.resumeLocked(now)
	for w := l.head; w != nil; w = w.next {
		w.free = true
		w.signalLocked()
	}
}

// sharedLocked has the line go on after a waiter of it was granted a share: where one is granted all are, until Redis refuses one.
func (l *line) sharedLocked() {
	if l.space.shared == nil || l.space.pool != nil || !l.refused {
		return
	}
	l.refused = false
	l.openLocked(l.space.core.Clock.Now())
}

// releasedLocked lets the line go on after a release by this client, of which so many clients heard.
//
// Clients that contend take turns by time: one that had its turn leaves the lock to the others for about as long as
// they need for theirs. So a release is answered by few failing tries, however many clients wait, and none is starved
// by another that happens to be nearer to Redis.
func (l *line) releasedLocked(now time.Duration, heard int) {
	if l == nil || l.head == nil {
		return
	}
	others := heard
	if l.confirmed {
		others--
	}
	turn := l.space.turn()
	if now-l.turnAt < turn {
		l.resumeLocked(now)
		return
	}
	l.turnAt = 0
	if others <= 0 {
		l.resumeLocked(now)
		return
	}
	l.restUntil = now + min(time.Duration(others)*max(turn, l.gap), longestRest)
	l.tryAt = min(l.tryAt, l.restUntil)
	l.head.signalLocked()
}

// turn is for how long a client's waiters may follow one another while other clients wait.
func (s *Space) turn() time.Duration { return max(s.core.HandoffBudget, shortestTurn) }

// beginTurnLocked notes that this client has the lock.
func (l *line) beginTurnLocked(now time.Duration) {
	if l.turnAt == 0 {
		l.turnAt = max(now, 1) // 0 is for no turn
	}
}

// busyLocked sets when to ask again after a try found the lock taken.
func (l *line) busyLocked(now, ttl time.Duration) {
	l.turnAt = 0
	if l.space.apart != nil && l.head.patrol != nil {
		l.head.patrol.lookLocked(now, ttl)
		return
	}
	spread := max(1, float64(l.space.core.Waiting.Load())/recheckRate)
	next := now + core.Jitter(time.Duration(float64(recheck)*spread))
	if ttl >= 0 {
		next = min(next, now+ttl+time.Millisecond)
	}
	l.tryAt = next
}

// watchLocked has a holder in this client looked at from time to time while somebody waits for it: its lock may have been
// taken away in Redis. It returns when to look again.
func (l *line) watchLocked(holder *Lease) time.Duration {
	now := l.space.core.Clock.Now()
	if l.watched != holder {
		l.watched, l.watchAt = holder, now+core.Jitter(recheck)
	}
	if now >= l.watchAt {
		l.watchAt = now + core.Jitter(recheck)
		holder.recheck()
	}
	return l.watchAt - now
}

// step is what a waiter is to do next.
type step uint8

const (
	stepWait step = iota
	stepTry
	stepHeld // the hold was handed on
	stepFail // its patrol has had no answer for too long
)

// nextStep tells a waiter what to do, and how long to wait at most.
func (w *waiter) nextStep() (step, time.Duration) {
	l := w.line
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	switch {
	case w.hold != nil:
		return stepHeld, 0
	case w.lostTouch:
		return stepFail, 0
	case w.free:
		return stepTry, 0
	case l.head != w:
		return stepWait, never
	}
	if holder := l.holderLocked(); holder != nil {
		return stepWait, l.watchLocked(holder) // it will hand on, release, or be lost: the line hears of each
	}
	if l.tryAt == 0 {
		return stepTry, 0
	}
	if left := l.tryAt - l.space.core.Clock.Now(); left > 0 {
		return stepWait, left
	}
	return stepTry, 0
}
