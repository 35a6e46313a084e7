// Package waitqueue decides for the waiters of one client for one name who asks Redis and when. Only the waiter at the head asks,
// and whoever else is admitted; the others wait until they are the head.
//
// It knows time, and neither Redis nor goroutines. A Queue and its waiters are not safe for concurrent use: the mutex of whoever owns
// the queue guards them.
package waitqueue

import (
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// slowReply is how long a question may be in flight before its reply counts as missing. The first one of a queue always does.
const slowReply = 100 * time.Millisecond

// Queue is the waiters of one client for one name, in the order in which they came. The zero value is an empty queue.
type Queue struct {
	head, tail *Waiter
	askAt      time.Duration // when the head is to ask; [Never] while it asks, or if something else has it ask
	wakeups    uint64
	tenure     Tenure
	releases   rate

	// Shared is set where several may hold the name: a message then has as many waiters ask as there are permits.
	Shared bool
	// Refused is set once a waiter was refused. Where several may hold the name, who comes later has to wait.
	Refused bool
	// Listening is set once releases are received.
	Listening bool

	askedAt time.Duration // when the question in flight was sent; 0 for none
	replied bool          // a question was answered
	lastErr error         // of the last question; nil for one that was answered
}

// Waiter is a call that waits in a queue.
type Waiter struct {
	// Call is for the owner of the queue.
	Call any
	// Wants is how many permits the waiter wants; 1 for a lock.
	Wants int
	// AdmittedAt is from when on the waiter may ask although it is not the head. [Queue.Join] sets it to [Never].
	AdmittedAt time.Duration

	queue      *Queue
	prev, next *Waiter
	wake       chan struct{} // 1: something has changed; made when the call first sleeps
	woken      bool          // something changed before wake was made
	asks       uint64        // questions so far
	asking     bool          // one is in flight
}

// Empty reports whether nobody waits.
func (q *Queue) Empty() bool { return q.head == nil }

// Each calls fn with the Call of each waiter, in order.
func (q *Queue) Each(fn func(call any)) {
	for w := q.head; w != nil; w = w.next {
		fn(w.Call)
	}
}

// Head returns the waiter at the head; nil if nobody waits.
func (q *Queue) Head() *Waiter { return q.head }

// Join puts a waiter at the end.
func (q *Queue) Join(w *Waiter) {
	w.queue, w.prev, w.AdmittedAt = q, q.tail, Never
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// Leave takes a waiter out. A wake-up that it has not used is the next one's: it belongs to the queue.
func (q *Queue) Leave(w *Waiter) {
	first := q.head == w
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	if !first || q.head == nil {
		return
	}
	if q.askAt == Never { // it left while it asked: the next one has to ask for itself
		q.askAt = 0
	}
	q.head.Wake()
}

// Step is what a waiter is to do next.
type Step uint8

const (
	// Wait until woken, or until the time is over.
	Wait Step = iota
	// Ask Redis.
	Ask
)

// Next returns what a waiter is to do, and for how long it is to wait at most.
func (w *Waiter) Next(now time.Duration) (Step, time.Duration) {
	at := w.AdmittedAt
	if w.queue.head == w {
		at = min(at, w.queue.askAt)
	}
	switch {
	case at <= now:
		return Ask, 0
	case at == Never:
		return Wait, Never
	}
	return Wait, at - now
}

// Wake has the waiter's call look again.
func (w *Waiter) Wake() {
	if w.wake == nil {
		w.woken = true
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // a token is there already
	}
}

// Woken returns the channel by which the waiter's call is woken; nil if something has changed already.
func (w *Waiter) Woken() <-chan struct{} {
	if w.woken {
		w.woken = false
		return nil
	}
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	return w.wake
}

// Asks returns how often the waiter has asked, and whether it asks now.
func (w *Waiter) Asks() (n uint64, now bool) { return w.asks, w.asking }

// Asking notes that a waiter asks. The result is for [Queue.Busy].
func (q *Queue) Asking(w *Waiter, now time.Duration) (wakeups uint64) {
	if q.head == w {
		q.askAt = Never
	}
	w.AdmittedAt, w.asking = Never, true
	w.asks++
	if q.askedAt == 0 {
		q.askedAt = max(now, 1) // 0 is for none
	}
	return q.wakeups
}

// Answered notes what came of the last question. One that its own call cut off says nothing after an error, nor soon after an earlier reply.
func (q *Queue) Answered(now time.Duration, err error) {
	asked := q.askedAt
	q.askedAt = 0
	switch {
	case err == nil:
		q.replied, q.lastErr = true, nil
	case script.CutOff(err) && (q.lastErr != nil || q.replied && !Slow(asked, now)):
	default:
		q.lastErr = err
	}
}

// Unanswered returns the error of the last question, or of the one in flight; nil for one that was answered.
func (q *Queue) Unanswered(now time.Duration) error {
	if q.lastErr == nil && q.askedAt != 0 && (!q.replied || Slow(q.askedAt, now)) {
		return script.ErrNoAnswer
	}
	return q.lastErr
}

// Slow reports whether the reply to a question that was sent at the given time counts as missing.
func Slow(sent, now time.Duration) bool { return now-sent >= slowReply }

// AskEnded notes that a waiter's question is over: what is heard from here on may be younger than its reply.
func (w *Waiter) AskEnded() { w.asking = false }

// Busy has the head ask again at the given time, after a question of the waiter's was refused. A wake-up that came while it asked may
// be younger than the reply, and stays: then, and for one who is not the head, it returns false.
func (q *Queue) Busy(w *Waiter, wakeups uint64, next time.Duration) bool {
	if q.wakeups != wakeups || q.head != w {
		return false
	}
	q.askAt = next
	return true
}

// AskBy has the head ask at the given time, or sooner.
func (q *Queue) AskBy(at time.Duration) { q.askAt = min(q.askAt, at) }

// AskAt has the head ask at the given time.
func (q *Queue) AskAt(at time.Duration) { q.askAt = at }

// Resume has the head ask now.
func (q *Queue) Resume(now time.Duration) {
	if q.head == nil {
		return
	}
	q.wakeups++
	q.askAt = now
	q.head.Wake()
}

// Admit lets all waiters ask now.
func (q *Queue) Admit(now time.Duration) {
	q.Resume(now)
	for w := q.head; w != nil; w = w.next {
		w.AdmittedAt = now
		w.Wake()
	}
}

// Notify has the head ask after a message: so many permits may be there.
func (q *Queue) Notify(now time.Duration, permits int) {
	if q.head == nil {
		return
	}
	q.releases.count(now)
	q.wakeups++
	q.askAt = min(q.askAt, max(now, q.tenure.restUntil))
	for w := q.head; w != nil && permits > 0; w = w.next {
		permits -= w.Wants // one that wants more than there is keeps those behind it from overtaking
		if q.Shared {
			w.AdmittedAt = now
		}
		w.Wake()
	}
}

// Granted notes that this client has the name.
func (q *Queue) Granted(now time.Duration) { q.tenure.Begin(now) }

// TenureOver notes that another client has it.
func (q *Queue) TenureOver() { q.tenure.End() }

// Released has the head ask after a release by this client, of which so many clients were notified. A client that had its turn leaves
// the name to the others first.
func (q *Queue) Released(now time.Duration, notified int, length time.Duration) {
	if q.head == nil {
		return
	}
	if q.Listening {
		notified--
	}
	length = max(length, ShortestTenure)
	if q.tenure.Over(now, length) && q.tenure.Yield(now, notified, length, q.releases.gap) {
		q.AskBy(q.tenure.restUntil)
		q.head.Wake()
		return
	}
	q.Resume(now)
}
