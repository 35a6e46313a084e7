package rsemaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	unknown   = math.MaxInt64 / 2     // stands for an unknown number of permits
	maxAsking = 200                   // requests of one queue in flight
	patience  = 50 * time.Millisecond // how long a request may be unanswered before Redis counts as silent
)

// manager is a client's state for its counting semaphores. It is safe for concurrent use.
type manager struct {
	core    *core.Core
	counter *counter.Manager
	queues  *core.Table[*waitQueue]
}

func newManager(c *core.Core) *manager {
	m := &manager{core: c, counter: counter.New(c, semaphoreKind()), queues: core.NewTable[*waitQueue]()}
	presence.Of(c).Add(m)
	return m
}

// Holds returns nothing: nobody knows who has the permits.
func (m *manager) Holds() []presence.Hold { return nil }

// Waits returns the calls that wait for permits.
func (m *manager) Waits() []presence.Wait {
	var all []presence.Wait
	m.queues.Each(func(q *waitQueue) {
		for w := q.head; w != nil; w = w.next {
			if w.refusals > 0 || w.state == waiting {
				all = append(all, presence.Wait{Kind: kinds.Semaphore, Name: m.core.UserName(q.key), Since: m.core.Clock.Time(w.since)})
			}
		}
	})
	return all
}

// waitQueue is one client's wait queue for one semaphore, first in, first out. The waiters at its front ask Redis, as
// many as there may be permits for; the others wait until those are served. It is guarded by its shard of the table, and
// exists while it has waiters.
type waitQueue struct {
	manager *manager
	shard   *core.Shard[*waitQueue]
	key     string
	head    *waiter
	tail    *waiter

	waiting   int   // waiters without a request in flight
	asking    int   // waiters with a request in flight
	requested int64 // permits that those ask for
	expected  int64 // permits that this client's operations in flight make available
	available int64 // permits that may be left for the next request
	blocked   bool  // the first waiter was refused, and no wake-up has come since
	wakeUps   uint64
	announced int64 // permits available according to the last wake-up

	failingSince time.Duration // when the requests began to fail; 0 if the last one did not
	failure      error         // of the last one; nil as well
	askingSince  time.Duration // when the oldest request in flight was made

	member     *pubsub.Membership // of the channel that announces permits; nil until a waiter was refused
	subscribed bool               // the subscription is confirmed
	timer      timer.Timer        // for the next re-check, or the end of a rest

	grantedAt time.Duration // when a waiter was last granted permits
	tenure    waitqueue.Tenure
}

// waiterState is where a waiter stands:
//
//	waiting ----> asking: its request is in flight, or is about to be
//	asking ----> waiting: refused, or withdrawn before it was sent
//	asking ----> abandoned: it gave up; what it is granted goes back
//	waiting, abandoned ----> gone
type waiterState uint8

const (
	waiting waiterState = iota
	asking
	abandoned
	gone
)

// waiter is an acquiring call in a wait queue.
type waiter struct {
	queue      *waitQueue
	prev, next *waiter
	n          int
	once       bool // it asks once, and does not wait
	state      waiterState
	refusals   int
	asked      int
	since      time.Duration
	wakeUps    uint64 // of the queue when it asked
	op         counter.Op
	done       chan struct{} // closed when acquired and err are set
	acquired   bool
	err        error
}

// left reports whether the waiter is not in the queue any more.
func (w *waiter) left() bool { return w.state == abandoned || w.state == gone }

// acquire acquires n permits. It waits without limit if wait is nil, and not at all if it is 0.
func (m *manager) acquire(ctx context.Context, key string, n int, wait *time.Duration) (bool, error) {
	if !m.core.Events.ObservesAcquire() {
		acquired, _, err := m.take(ctx, key, n, wait)
		return acquired, err
	}
	ctx, call := m.core.Events.BeginAcquire(ctx, kinds.Semaphore, m.core.UserName(key))
	acquired, asked, err := m.take(ctx, key, n, wait)
	refused := err
	if !acquired && err == nil {
		refused = errs.ErrNotAcquired
	}
	call.End(ctx, "", asked, refused)
	return acquired, err
}

// take is acquire, and returns how often it asked.
func (m *manager) take(ctx context.Context, key string, n int, wait *time.Duration) (acquired bool, asked int, err error) {
	if m.core.Closed() {
		return false, 0, errs.ErrClosed
	}
	once := wait != nil && *wait == 0
	shard := m.queues.Shard(key)
	shard.Lock()
	q := shard.Of[key]
	if q == nil {
		q = &waitQueue{manager: m, shard: shard, key: key, available: unknown}
		q.timer.Task = q
		shard.Of[key] = q
	}
	if once && q.waiting > 0 {
		shard.Unlock()
		return false, 0, nil
	}
	w := q.joinLocked(n, once)
	q.askLocked()
	shard.Unlock()
	if wait == nil || once {
		m.counter.GoAlong(ctx, key)
	} else { // a silent Redis must not hold up a call with a limit of its own
		m.counter.Go(key)
	}
	acquired, err = w.wait(ctx, wait)
	shard.Lock()
	defer shard.Unlock()
	return acquired, w.asked, err
}

// joinLocked adds a call at the end of the queue.
func (q *waitQueue) joinLocked(n int, once bool) *waiter {
	w := &waiter{queue: q, n: n, once: once, since: q.manager.core.Clock.Now(), prev: q.tail, done: make(chan struct{})}
	w.op = counter.Op{Code: acquireOrWait(n), Policy: counter.Grant, Answerer: w}
	if once {
		w.op.Code = acquireOnce(n)
	}
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.waiting++
	return w
}

// wait waits for the outcome of a call.
func (w *waiter) wait(ctx context.Context, limit *time.Duration) (bool, error) {
	c := w.queue.manager.core
	var timeout <-chan time.Time
	var d time.Duration
	switch {
	case limit != nil && *limit > 0:
		d = *limit
	case w.once:
		select {
		case <-w.done: // asked on this goroutine
			return w.acquired, w.err
		default:
		}
		if limit := c.Limit(ctx); limit > 0 {
			d = max(limit-(c.Clock.Now()-w.since), time.Millisecond)
		}
	}
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	var why error
	select {
	case <-w.done:
		return w.acquired, w.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-c.Closing():
		why = errs.ErrClosed
	case <-timeout:
	}
	return w.giveUp(why)
}

// giveUp removes a waiter, unless its outcome is known after all.
func (w *waiter) giveUp(why error) (acquired bool, err error) {
	q := w.queue
	q.shard.Lock()
	if w.left() {
		q.shard.Unlock()
		return w.acquired, w.err
	}
	if why != errs.ErrClosed && q.silentLocked() { //nolint:errorlint // set by wait
		why = unavailable(why, cmp.Or(q.manager.counter.Met(q.key), q.failure))
	}
	w.withdrawLocked()
	w.leaveLocked()
	q.askLocked()
	q.shard.Unlock()
	q.manager.counter.Go(q.key)
	return false, why
}

// silentLocked reports whether it is unknown if permits are available: Redis's last reply was an error, or it takes too
// long.
func (q *waitQueue) silentLocked() bool {
	now := q.manager.core.Clock.Now()
	return q.failingSince != 0 || q.asking > 0 && now-q.askingSince > patience
}

// unavailable returns the error of a wait that ended while Redis was silent: why is the context's error, or nil if the
// wait time was over, and last that of the last request, nil if there was no reply at all.
func unavailable(why, last error) error {
	err := cmp.Or(last, script.ErrNoAnswer)
	if !errors.Is(err, errs.ErrUnavailable) {
		err = core.Unanswered(err)
	}
	if why == nil {
		return err
	}
	return fmt.Errorf("%w: %w", why, err)
}

// endLocked removes a waiter with the outcome of its call.
func (w *waiter) endLocked(acquired bool, err error) {
	w.leaveLocked()
	w.acquired, w.err = acquired, err
	close(w.done)
}

// leaveLocked removes a waiter. The next one may have been waiting only for it.
func (w *waiter) leaveLocked() {
	q := w.queue
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
	if w.state == asking {
		w.state = abandoned
	} else {
		w.state = gone
		q.waiting--
	}
	if q.head == nil {
		q.closeLocked()
		return
	}
	if first && q.blocked {
		q.blocked = false // this one was refused, and not the next
	}
}

// closeLocked ends an empty queue.
func (q *waitQueue) closeLocked() {
	c := q.manager.core
	c.Timers.Stop(&q.timer)
	if q.member != nil {
		q.member.Leave()
		q.member = nil
		c.Waiting.Add(-1)
	}
	if q.shard.Of[q.key] == q {
		delete(q.shard.Of, q.key)
	}
}

// askLocked makes requests for the waiters at the front of the queue, as many as there may be permits for. The first
// waiter asks in any case if no request is in flight, unless the queue is blocked. The caller then calls Go of the
// counter.
func (q *waitQueue) askLocked() {
	if q.blocked || q.waiting == 0 || q.restsLocked() {
		return
	}
	w := q.head
	if q.waiting == 1 && q.tail.state == waiting { // the usual case: a call that has just come
		w = q.tail
	}
	for ; w != nil && q.asking < maxAsking; w = w.next {
		if w.state == asking {
			continue
		}
		if int64(w.n) > q.available && !w.once && (w != q.head || q.asking > 0) {
			return
		}
		w.state, w.wakeUps, w.asked = asking, q.wakeUps, w.asked+1
		if !q.manager.counter.Put(q.key, &w.op) { // the client is closing
			w.state = waiting
			return
		}
		if q.asking == 0 {
			q.askingSince = q.manager.core.Clock.Now()
		}
		q.waiting--
		q.asking++
		q.requested += int64(w.n)
		q.available -= int64(w.n)
	}
}

// restsLocked reports whether other clients go first, and has the timer resume the queue afterwards.
func (q *waitQueue) restsLocked() bool {
	until := q.tenure.RestsUntil()
	if until == 0 || q.manager.core.Clock.Now() >= until {
		return false
	}
	q.manager.core.Timers.Set(&q.timer, until)
	return true
}

// withdrawLocked withdraws a request that has not been sent.
func (w *waiter) withdrawLocked() {
	q := w.queue
	if w.state != asking {
		return
	}
	if fate, _ := q.manager.counter.Leave(q.key, &w.op); fate != counter.Withdrawn {
		return
	}
	q.answeredLocked(w)
	w.state = waiting
	q.waiting++
}

// answeredLocked counts a request as no longer in flight.
func (q *waitQueue) answeredLocked(w *waiter) {
	q.asking--
	q.requested -= int64(w.n)
}

// Answered takes the reply to a waiter's request.
func (w *waiter) Answered(op *counter.Op, others []int64) {
	q := w.queue
	granted := op.Err == nil && op.Result == 1
	unconfirmed := granted && op.Unconfirmed != nil
	if unconfirmed && !op.Late { // before the caller learns of it: it may close the client
		q.manager.giveBack(q.key, w.n)
		granted = false
	}
	if op.Late { // its caller got ErrUnknown
		if granted {
			q.manager.giveBack(q.key, w.n)
		}
		return
	}
	q.shard.Lock()
	q.answeredLocked(w)
	if op.Err == nil {
		q.countLocked(others)
		q.failingSince, q.failure = 0, nil
		q.askingSince = q.manager.core.Clock.Now() // what is still in flight was sent with it or later
	}
	if w.state == abandoned {
		w.state = gone
		q.askLocked()
		q.shard.Unlock()
		if granted {
			q.manager.giveBack(q.key, w.n)
		}
		q.manager.counter.Go(q.key)
		return
	}
	w.state = waiting
	q.waiting++
	switch {
	case unconfirmed:
		w.endLocked(false, fmt.Errorf("%w: %w", errs.ErrUnavailable, op.Unconfirmed))
	case granted:
		q.grantedLocked()
		w.endLocked(true, nil)
	case op.Err != nil:
		q.failedLocked(w, op.Err)
	case w.once:
		w.endLocked(false, nil)
	default:
		q.refusedLocked(w)
	}
	if op.Err == nil && q.asking == 0 && q.head != nil && !q.blocked && w.wakeUps == q.wakeUps && int64(q.head.n) > q.available {
		q.blockLocked() // this reply holds for the next waiter too
	}
	q.askLocked()
	q.shard.Unlock()
	q.manager.counter.Go(q.key)
}

// countLocked computes from a reply how many permits may be left for the next request.
func (q *waitQueue) countLocked(others []int64) {
	available, _ := countsOf(others)
	q.available = available - q.requested + q.expected
}

// grantedLocked notes a grant. A tenure without one for its whole length is another's by now, and a new one begins.
func (q *waitQueue) grantedLocked() {
	now := q.manager.core.Clock.Now()
	if now-q.grantedAt > q.manager.tenure() {
		q.tenure.End()
	}
	q.tenure.Begin(now)
	q.grantedAt = now
}

// refusedLocked blocks the queue, unless a wake-up came while the waiter asked.
func (q *waitQueue) refusedLocked(w *waiter) {
	w.refusals++
	if w == q.head && (w.wakeUps == q.wakeUps || q.announced < int64(w.n)) {
		q.blockLocked()
	}
}

// failedLocked decides what an error means for a wait. An error that will not pass ends it; on the first attempt, every
// error does.
func (q *waitQueue) failedLocked(w *waiter, err error) {
	now := q.manager.core.Clock.Now()
	if q.failingSince == 0 {
		q.failingSince = now
	}
	q.failure = err
	if w.once || w.refusals == 0 || !script.Transient(err) || now-q.failingSince >= q.manager.core.Lease {
		w.endLocked(false, err)
		return
	}
	if w == q.head {
		q.blockLocked()
	}
}

// blockLocked blocks the queue until a message arrives or the next re-check is due.
func (q *waitQueue) blockLocked() {
	c := q.manager.core
	q.blocked = true
	for w := q.head; w != nil; {
		next := w.next
		w.withdrawLocked() // no waiter asks before the first one
		if w.once && w.state == waiting {
			w.endLocked(false, nil)
		}
		w = next
	}
	if q.head == nil {
		return
	}
	c.Timers.Set(&q.timer, c.Clock.Now()+waitqueue.Pause(waitqueue.Recheck, c.Waiting.Load()))
	if q.member != nil {
		return
	}
	c.Waiting.Add(1)
	if q.member, q.subscribed = c.Router.Join(semaphoreChannel(q.key), q); q.subscribed {
		q.checkLocked() // the refusal may be older than the last message
	}
}

// wakeLocked lets as many waiters ask as there are permits available.
func (q *waitQueue) wakeLocked(permits int64) {
	q.wakeUps++
	q.announced = permits
	q.available = permits - q.requested + q.expected
	if q.head != nil && int64(q.head.n) <= permits {
		q.blocked = false
		q.askLocked()
	}
}

// checkLocked lets the first waiter ask: the number of permits available is unknown.
func (q *waitQueue) checkLocked() {
	q.wakeUps++
	q.announced = unknown
	q.blocked = false
	q.askLocked()
}

func (q *waitQueue) check() {
	q.shard.Lock()
	q.checkLocked()
	q.shard.Unlock()
	q.manager.counter.Go(q.key)
}

// Due lets the first waiter ask, for a re-check or after others went first.
func (q *waitQueue) Due(time.Duration) { q.check() }

// Subscribed lets the first waiter ask: a message published before the subscription was confirmed is lost.
func (q *waitQueue) Subscribed() {
	q.shard.Lock()
	q.subscribed = true
	q.shard.Unlock()
	q.check()
}

// Message lets as many waiters ask as there are permits available.
func (q *waitQueue) Message(payload string) {
	permits, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || permits < 1 {
		return
	}
	q.manager.core.Events.Woken(kinds.Semaphore, q.manager.core.UserName(q.key))
	q.shard.Lock()
	q.wakeLocked(permits)
	q.shard.Unlock()
	q.manager.counter.Go(q.key)
}
