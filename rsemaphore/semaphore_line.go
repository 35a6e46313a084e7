package rsemaphore

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/names"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/tally"
	"github.com/redlatch/redlatch/internal/watchdog"
	"github.com/redlatch/redlatch/internal/wheel"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	recheck      = time.Second           // the first in line asks again at least this often, jittered
	recheckRate  = 500                   // re-checks a second of one client, above which they become rarer
	shortestTurn = time.Millisecond      // of a client that hands permits on among its own
	longestRest  = 20 * time.Millisecond // after a turn
	plenty       = math.MaxInt64 / 2     // permits that may be there as long as nothing is known
	maxAsked     = 200                   // waiters of a line that ask at a time
)

// Desk is where a client's counting semaphores are served. It is safe for concurrent use.
type Desk struct {
	engine *engine.Engine
	book   *tally.Book
	lines  *names.Table[*line]
}

// NewDesk returns the desk of a client. It is for the client.
func NewDesk(e *engine.Engine) *Desk {
	return &Desk{engine: e, book: tally.New(e, semaphoreKind()), lines: names.New[*line]()}
}

// line is where the acquiring calls of one client for one semaphore stand, in the order in which they came. Those at its
// front ask Redis, as many as there may be permits for; the others wait until those before them are served. It is guarded
// by its part of the table, and exists while somebody stands in it.
type line struct {
	desk *Desk
	part *names.Part[*line]
	key  string
	head *waiter
	tail *waiter

	asked    int   // waiters whose question is not answered
	promised int64 // permits that they ask for
	coming   int64 // permits that this client makes available just now
	standing int   // waiters that do not ask
	spare    int64 // permits that may be there for who asks next
	blocked  bool  // the first one was refused, and nothing has been heard since
	wakes    uint64
	heard    int64         // permits that were there by the last wake-up
	failing  time.Duration // since when Redis gives no answer; 0 if it does

	member    *pubsub.Membership // of the channel that announces permits; nil until somebody had to wait
	confirmed bool               // the subscription stands
	timer     wheel.Timer        // the next re-check, or the end of a rest
	grantAt   time.Duration      // when the last one got its permits
	turnAt    time.Duration      // when this client's turn began; 0 outside of one
	restUntil time.Duration      // until when it is the others' turn
}

// waiter is an acquiring call in a line.
type waiter struct {
	line       *line
	prev, next *waiter
	n          int
	once       bool // it does not wait
	asks       bool // its question is under way
	out        bool // it has left the line
	refused    int  // times
	wakes      uint64
	op         tally.Op
	done       chan struct{} // closed when acquired and err are set
	acquired   bool
	err        error
}

// acquire takes n permits. It waits without limit if wait is nil, and not at all if it is 0.
func (d *Desk) acquire(ctx context.Context, key string, n int, wait *time.Duration) (bool, error) {
	if d.engine.Closed() {
		return false, errs.ErrClosed
	}
	once := wait != nil && *wait == 0
	started := d.engine.Clock.Now()
	part := d.lines.Part(key)
	part.Lock()
	l := part.Of[key]
	if l == nil {
		l = &line{desk: d, part: part, key: key, spare: plenty}
		l.timer.Owner = l
		part.Of[key] = l
	}
	if once && l.standing > 0 {
		part.Unlock()
		return false, nil
	}
	w := l.joinLocked(n, once)
	l.askLocked(false)
	part.Unlock()
	d.book.GoAlong(ctx, key)
	acquired, err := w.wait(ctx, wait)
	if f := d.engine.Hooks.Acquired; f != nil && acquired {
		f("rsemaphore", key[len(d.engine.Prefix):], d.engine.Clock.Now()-started)
	}
	return acquired, err
}

// change carries out an operation that makes so many permits available, or less than 1.
func (d *Desk) change(ctx context.Context, key, code string, permits int64, insists bool) (int64, error) {
	if permits < 1 {
		return d.book.Do(ctx, key, tally.Ask{Code: code, Insists: insists}, nil)
	}
	h := &handing{desk: d, key: key}
	return d.book.Do(ctx, key, tally.Ask{Code: code, Insists: insists, Then: h}, func() { h.began(permits) })
}

// joinLocked puts a call at the end of the line.
func (l *line) joinLocked(n int, once bool) *waiter {
	w := &waiter{line: l, n: n, once: once, prev: l.tail, done: make(chan struct{})}
	w.op = tally.Op{Code: acquireInLine(n), Grants: true, Answerer: w}
	if once {
		w.op.Code = acquireOnce(n)
	}
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.standing++
	return w
}

// askLocked has those at the front of the line ask, as many as there may be permits for; the first one in any case if
// force is set, or if nobody is asking and nothing is known against it. The desk's book is to be told to go.
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
		if !l.desk.book.Put(l.key, &w.op) { // the client closes
			w.asks = false
			return
		}
		l.standing--
		l.asked++
		l.promised += int64(w.n)
		l.spare -= int64(w.n)
	}
}

// restsLocked reports whether it is the others' turn, and sees to it that the line goes on afterwards.
func (l *line) restsLocked() bool {
	if l.restUntil == 0 {
		return false
	}
	if l.desk.engine.Clock.Now() >= l.restUntil {
		l.restUntil = 0
		return false
	}
	l.desk.engine.Watchdog.Set(&l.timer, l.restUntil+time.Millisecond) // a timer may be that much early
	return true
}

// Answered hears whether a waiter has its permits.
func (w *waiter) Answered(op *tally.Op, others []int64) {
	l := w.line
	l.part.Lock()
	granted := op.Err == nil && op.Result == 1
	w.asks = false
	l.asked--
	l.promised -= int64(w.n)
	if op.Err == nil {
		l.countLocked(others)
		l.failing = 0
	}
	if w.out { // it gave up meanwhile
		l.askLocked(false)
		l.part.Unlock()
		if granted {
			l.desk.giveBack(l.key, w.n)
		}
		l.desk.book.Go(l.key)
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
		l.blockLocked(recheck) // this answer is the next one's too
	}
	l.askLocked(false)
	l.part.Unlock()
	l.desk.book.Go(l.key)
}

// countLocked takes from an answer how many permits may be there for who asks next.
func (l *line) countLocked(others []int64) {
	there, _ := after(others)
	l.spare = there - l.promised + l.coming
}

// grantedLocked notes that this client has got permits, and begins its turn if it had none for a while.
func (l *line) grantedLocked() {
	now := l.desk.engine.Clock.Now()
	if l.turnAt == 0 || now-l.grantAt > l.desk.turn() {
		l.turnAt = now
	}
	l.grantAt = now
}

// unaskLocked takes back a question that has not been sent.
func (w *waiter) unaskLocked() {
	l := w.line
	if !w.asks || l.desk.book.Leave(l.key, &w.op) != tally.Never {
		return
	}
	w.asks = false
	l.asked--
	l.promised -= int64(w.n)
	l.standing++
}

// refusedLocked has the line wait, unless there was news while the waiter asked.
func (l *line) refusedLocked(w *waiter) {
	w.refused++
	if w == l.head && (w.wakes == l.wakes || l.heard < int64(w.n)) {
		l.blockLocked(recheck)
	}
}

// blockLocked has the line wait for news: for a message, or for the time of the next re-check.
func (l *line) blockLocked(pause time.Duration) {
	e := l.desk.engine
	l.blocked = true
	for w := l.head; w != nil; {
		next := w.next
		w.unaskLocked() // nobody asks before the first one
		if w.once && !w.asks {
			w.endLocked(false, nil)
		}
		w = next
	}
	if l.head == nil {
		return
	}
	spread := max(1, float64(e.Waiting.Load())/recheckRate)
	e.Watchdog.Set(&l.timer, e.Clock.Now()+engine.Jitter(time.Duration(float64(pause)*spread)))
	if l.member != nil {
		return
	}
	e.Waiting.Add(1)
	if l.member, l.confirmed = e.Router.Join(semaphoreChannel(l.key), l); l.confirmed {
		l.lookLocked() // the refusal may be older than the last message
	}
}

// failedLocked decides what an error means for a wait: one that cannot pass ends it, and on the first try all do.
func (l *line) failedLocked(w *waiter, err error) {
	now := l.desk.engine.Clock.Now()
	if l.failing == 0 {
		l.failing = now
	}
	passing := script.Transient(err)
	if w.once || w.refused == 0 || !passing || now-l.failing >= l.desk.engine.Lease {
		w.endLocked(false, err)
		return
	}
	if w == l.head {
		l.blockLocked(recheck)
	}
}

// endLocked takes a waiter out of its line with what came of it.
func (w *waiter) endLocked(acquired bool, err error) {
	w.leaveLocked()
	w.acquired, w.err = acquired, err
	close(w.done)
}

// leaveLocked takes a waiter out of its line. The next one may have been waiting for it alone.
func (w *waiter) leaveLocked() {
	l := w.line
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
	w.prev, w.next, w.out = nil, nil, true
	if !w.asks {
		l.standing--
	}
	if l.head == nil {
		l.closeLocked()
		return
	}
	if first && l.blocked {
		l.blocked = false // this one was refused, and not the next
	}
}

// closeLocked ends a line that is empty.
func (l *line) closeLocked() {
	e := l.desk.engine
	e.Watchdog.Stop(&l.timer)
	if l.member != nil {
		l.member.Leave()
		l.member = nil
		e.Waiting.Add(-1)
	}
	if l.part.Of[l.key] == l {
		delete(l.part.Of, l.key)
	}
}

// wait waits for what comes of a call.
func (w *waiter) wait(ctx context.Context, limit *time.Duration) (bool, error) {
	e := w.line.desk.engine
	var timeout <-chan time.Time
	if limit != nil && *limit > 0 {
		timer := time.NewTimer(*limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var why error
	select {
	case <-w.done:
		return w.acquired, w.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-e.Closing():
		why = errs.ErrClosed
	case <-timeout:
	}
	l := w.line
	l.part.Lock()
	if w.out {
		l.part.Unlock()
		return w.acquired, w.err
	}
	w.unaskLocked()
	w.leaveLocked()
	l.askLocked(false)
	l.part.Unlock()
	l.desk.book.Go(l.key)
	return false, why
}

// wakeLocked has as many ask as there are permits for: so many are there.
func (l *line) wakeLocked(permits int64) {
	l.wakes++
	l.heard = permits
	l.spare = permits - l.promised + l.coming
	if l.head != nil && int64(l.head.n) <= permits {
		l.blocked = false
		l.askLocked(l.asked == 0)
	}
}

// lookLocked has the first in line ask: nobody knows how many permits are there.
func (l *line) lookLocked() {
	l.wakes++
	l.heard = plenty
	l.blocked = false
	l.askLocked(l.asked == 0)
}

// Due has the first in line ask again after a time, or after a rest.
func (l *line) Due(time.Duration) watchdog.Renewer {
	l.look()
	return nil
}

// Subscribed has the line ask again: what was announced before the subscription stood has not been heard.
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
	l.desk.book.Go(l.key)
}

// Message has as many ask as there are permits for.
func (l *line) Message(payload string) {
	permits, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || permits < 1 {
		return
	}
	if f := l.desk.engine.Hooks.Woken; f != nil {
		f("rsemaphore", l.key[len(l.desk.engine.Prefix):])
	}
	l.part.Lock()
	l.wakeLocked(permits)
	l.part.Unlock()
	l.desk.book.Go(l.key)
}
