package rsemaphore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/names"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	recheck      = time.Second           // the first in line asks again at least this often, jittered
	recheckRate  = 500                   // re-checks a second of one client, above which they become rarer
	shortestTurn = time.Millisecond      // of a client that hands permits on among its own
	longestRest  = 20 * time.Millisecond // after a turn
	plenty       = math.MaxInt64 / 2     // permits that may be there as long as nothing is known
	maxAsked     = 200                   // waiters of a line that ask at a time
	owed         = time.Hour             // how long permits are given back that Redis refuses to take
)

// manager is what a client knows of its counting semaphores. It is safe for concurrent use.
type manager struct {
	core  *core.Core
	book  *counter.Manager
	lines *names.Table[*line]
}

func newManager(e *core.Core) *manager {
	return &manager{core: e, book: counter.New(e, semaphoreKind()), lines: names.New[*line]()}
}

// line is where the acquiring calls of one client for one semaphore stand, in the order in which they came. Those at its
// front ask Redis, as many as there may be permits for; the others wait until those before them are served. It is guarded
// by its part of the table, and exists while somebody stands in it.
type line struct {
	desk *manager
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
	failing  time.Duration // since when Redis answers with errors; 0 if it does not
	askedAt  time.Duration // when somebody began to ask, of those who ask now

	member    *pubsub.Membership // of the channel that announces permits; nil until somebody had to wait
	confirmed bool               // the subscription stands
	timer     timer.Timer        // the next re-check, or the end of a rest
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
	since      time.Duration
	wakes      uint64
	op         counter.Op
	done       chan struct{} // closed when acquired and err are set
	acquired   bool
	err        error
}

// acquire takes n permits. It waits without limit if wait is nil, and not at all if it is 0.
func (d *manager) acquire(ctx context.Context, key string, n int, wait *time.Duration) (bool, error) {
	if d.core.Closed() {
		return false, errs.ErrClosed
	}
	once := wait != nil && *wait == 0
	started := d.core.Clock.Now()
	part := d.lines.Part(key)
	part.Lock()
	l := part.Of[key]
	if l == nil {
		l = &line{desk: d, part: part, key: key, spare: plenty}
		l.timer.Task = l
		part.Of[key] = l
	}
	if once && l.standing > 0 {
		part.Unlock()
		return false, nil
	}
	w := l.joinLocked(n, once)
	l.askLocked(false)
	part.Unlock()
	if wait == nil || once {
		d.book.GoAlong(ctx, key)
	} else { // a silent Redis must not hold up a call with a limit of its own
		d.book.Go(key)
	}
	acquired, err := w.wait(ctx, wait)
	if f := d.core.Hooks.Acquired; f != nil && acquired {
		f("rsemaphore", d.core.UserName(key), d.core.Clock.Now()-started)
	}
	return acquired, err
}

// change carries out an operation that makes so many permits available, or less than 1.
func (d *manager) change(ctx context.Context, key, code string, permits int64, policy counter.Policy) (int64, error) {
	ask := counter.Ask{Code: code, Policy: policy}
	if permits > 0 {
		h := &handing{desk: d, key: key, permits: permits}
		ask.Then, ask.Put, ask.Withdrawn = h, h.put, h.withdrawn
	}
	return d.book.Do(ctx, key, ask)
}

// joinLocked puts a call at the end of the line.
func (l *line) joinLocked(n int, once bool) *waiter {
	w := &waiter{line: l, n: n, once: once, since: l.desk.core.Clock.Now(), prev: l.tail, done: make(chan struct{})}
	w.op = counter.Op{Code: acquireInLine(n), Policy: counter.Grant, Answerer: w}
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
	e := l.desk.core
	e.Timers.Stop(&l.timer)
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
	e := w.line.desk.core
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
		if limit := e.Limit(ctx); limit > 0 {
			d = max(limit-(e.Clock.Now()-w.since), time.Millisecond)
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
	if why != errs.ErrClosed && w.silentLocked() { //nolint:errorlint // set above
		why = unavailable(why)
	}
	w.unaskLocked()
	w.leaveLocked()
	l.askLocked(false)
	l.part.Unlock()
	l.desk.book.Go(l.key)
	return false, why
}

// patience is how long a question may be unanswered before Redis is taken for silent.
const patience = 50 * time.Millisecond

// silentLocked reports whether nobody knows if there are permits: Redis's last answer was an error, or it takes too long.
func (w *waiter) silentLocked() bool {
	l := w.line
	now := l.desk.core.Clock.Now()
	return l.failing != 0 || l.asked > 0 && now-l.askedAt > patience
}

// unavailable returns the error of a wait that ended while Redis was silent: by its context, or by its limit for nil.
func unavailable(why error) error {
	if why == nil {
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, script.ErrNoAnswer)
	}
	return fmt.Errorf("%w: %w", why, errs.ErrUnavailable)
}
