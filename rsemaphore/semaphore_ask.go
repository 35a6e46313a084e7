package rsemaphore

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/script"
)

// askLocked makes requests for the waiters at the front of the queue, as many as there may be permits for. The first
// waiter asks in any case if force is set, or if no request is in flight and the queue is not blocked. The caller then
// calls Go of the operation log.
func (l *line) askLocked(force bool) {
	if l.blocked || l.standing == 0 || l.restsLocked() {
		return
	}
	w := l.head
	if l.standing == 1 && !l.tail.asks { // the usual case: a call that has just come
		w = l.tail
	}
	for ; w != nil && l.asked < maxAsked; w = w.next {
		if w.asks {
			continue
		}
		if int64(w.n) > l.spare && !w.once && (w != l.head || !force && l.asked > 0) {
			return
		}
		w.asks, w.wakes = true, l.wakes
		if !l.manager.counter.Put(l.key, &w.op) { // the client is closing
			w.asks = false
			return
		}
		if l.asked == 0 {
			l.askedAt = l.manager.core.Clock.Now()
		}
		l.standing--
		l.asked++
		l.promised += int64(w.n)
		l.spare -= int64(w.n)
	}
}

// restsLocked reports whether other clients have the turn, and has the timer resume the queue afterwards.
func (l *line) restsLocked() bool {
	if l.restUntil == 0 {
		return false
	}
	if l.manager.core.Clock.Now() >= l.restUntil {
		l.restUntil = 0
		return false
	}
	l.manager.core.Timers.Set(&l.timer, l.restUntil+time.Millisecond) // a timer may be that much early
	return true
}

// Answered takes the reply to a waiter's request.
func (w *waiter) Answered(op *counter.Op, others []int64) {
	l := w.line
	granted := op.Err == nil && op.Result == 1
	if op.Late { // its caller got ErrUnknown
		if granted {
			l.manager.giveBack(l.key, w.n)
		}
		return
	}
	l.part.Lock()
	w.asks = false
	l.asked--
	l.promised -= int64(w.n)
	if op.Err == nil {
		l.countLocked(others)
		l.failing = 0
		l.askedAt = l.manager.core.Clock.Now() // what is still in flight was sent with it or later
	}
	if w.out { // it gave up meanwhile
		l.askLocked(false)
		l.part.Unlock()
		if granted {
			l.manager.giveBack(l.key, w.n)
		}
		l.manager.counter.Go(l.key)
		return
	}
	l.standing++
	switch {
	case granted:
		l.grantedLocked()
		w.endLocked(true, nil)
	case op.Err != nil:
		l.failedLocked(w, op.Err)
	case w.once:
		w.endLocked(false, nil)
	default:
		l.refusedLocked(w)
	}
	if op.Err == nil && l.asked == 0 && l.head != nil && !l.blocked && w.wakes == l.wakes && int64(l.head.n) > l.spare {
		l.blockLocked(recheck) // this reply holds for the next waiter too
	}
	l.askLocked(false)
	l.part.Unlock()
	l.manager.counter.Go(l.key)
}

// countLocked computes from a reply how many permits may be left for the next request.
func (l *line) countLocked(others []int64) {
	there, _ := after(others)
	l.spare = there - l.promised + l.coming
}

// grantedLocked notes a grant, and begins this client's turn unless one is running.
func (l *line) grantedLocked() {
	now := l.manager.core.Clock.Now()
	if l.turnAt == 0 || now-l.grantAt > l.manager.turn() {
		l.turnAt = now
	}
	l.grantAt = now
}

// unaskLocked withdraws a request that has not been sent.
func (w *waiter) unaskLocked() {
	l := w.line
	if !w.asks {
		return
	}
	if fate, _ := l.manager.counter.Leave(l.key, &w.op); fate != counter.Withdrawn {
		return
	}
	w.asks = false
	l.asked--
	l.promised -= int64(w.n)
	l.standing++
}

// refusedLocked blocks the queue, unless a wake-up came while the waiter asked.
func (l *line) refusedLocked(w *waiter) {
	w.refused++
	if w == l.head && (w.wakes == l.wakes || l.heard < int64(w.n)) {
		l.blockLocked(recheck)
	}
}

// blockLocked blocks the queue until a message arrives or the next re-check is due.
func (l *line) blockLocked(pause time.Duration) {
	e := l.manager.core
	l.blocked = true
	for w := l.head; w != nil; {
		next := w.next
		w.unaskLocked() // no waiter asks before the first one
		if w.once && !w.asks {
			w.endLocked(false, nil)
		}
		w = next
	}
	if l.head == nil {
		return
	}
	spread := max(1, float64(e.Waiting.Load())/recheckRate)
	e.Timers.Set(&l.timer, e.Clock.Now()+core.Jitter(time.Duration(float64(pause)*spread)))
	if l.member != nil {
		return
	}
	e.Waiting.Add(1)
	if l.member, l.confirmed = e.Router.Join(semaphoreChannel(l.key), l); l.confirmed {
		l.lookLocked() // the refusal may be older than the last message
	}
}

// failedLocked decides what an error means for a wait. An error that will not pass ends it; on the first attempt, every
// error does.
func (l *line) failedLocked(w *waiter, err error) {
	now := l.manager.core.Clock.Now()
	if l.failing == 0 {
		l.failing = now
	}
	passing := script.Transient(err)
	if w.once || w.refused == 0 || !passing || now-l.failing >= l.manager.core.Lease {
		w.endLocked(false, err)
		return
	}
	if w == l.head {
		l.blockLocked(recheck)
	}
}

// wakeLocked lets as many waiters ask as there are permits available.
func (l *line) wakeLocked(permits int64) {
	l.wakes++
	l.heard = permits
	l.spare = permits - l.promised + l.coming
	if l.head != nil && int64(l.head.n) <= permits {
		l.blocked = false
		l.askLocked(l.asked == 0)
	}
}

// lookLocked lets the first waiter ask: the number of permits available is unknown.
func (l *line) lookLocked() {
	l.wakes++
	l.heard = plenty
	l.blocked = false
	l.askLocked(l.asked == 0)
}

// Due lets the first waiter ask, for a re-check or after the turn of others.
func (l *line) Due(time.Duration) {
	l.look()
}

// Subscribed lets the first waiter ask: a message published before the subscription was confirmed is lost.
func (l *line) Subscribed() {
	l.part.Lock()
	l.confirmed = true
	l.part.Unlock()
	l.look()
}

func (l *line) look() {
	l.part.Lock()
	l.lookLocked()
	l.part.Unlock()
	l.manager.counter.Go(l.key)
}

// Message lets as many waiters ask as there are permits available.
func (l *line) Message(payload string) {
	permits, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || permits < 1 {
		return
	}
	if f := l.manager.core.Hooks.Woken; f != nil {
		f("rsemaphore", l.manager.core.UserName(l.key))
	}
	l.part.Lock()
	l.wakeLocked(permits)
	l.part.Unlock()
	l.manager.counter.Go(l.key)
}
