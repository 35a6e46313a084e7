package rsemaphore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	recheck      = time.Second           // the first waiter asks at least this often, jittered
	recheckRate  = 500                   // re-checks per second of one client; above it, each queue re-checks less often
	shortestTurn = time.Millisecond      // of a client that passes permits among its own waiters
	longestRest  = 20 * time.Millisecond // pause after a turn
	plenty       = math.MaxInt64 / 2     // stands for an unknown number of permits
	maxAsked     = 200                   // requests of one queue in flight
	owed         = time.Hour             // how long a release that Redis refuses is repeated
)

// manager is a client's state for its counting semaphores. It is safe for concurrent use.
type manager struct {
	core    *core.Core
	counter *counter.Manager
	lines   *core.Table[*line]
}

func newManager(e *core.Core) *manager {
	return &manager{core: e, counter: counter.New(e, semaphoreKind()), lines: core.NewTable[*line]()}
}

// line is one client's wait queue for one semaphore, first in, first out. The waiters at its front ask Redis, as many
// as there may be permits for; the others wait until those are served. It is guarded by its part of the table, and
// exists while it has waiters.
type line struct {
	manager *manager
	part    *core.Shard[*line]
	key     string
	head    *waiter
	tail    *waiter

	asked    int   // waiters with a request in flight
	promised int64 // permits that those ask for
	coming   int64 // permits that this client's operations in flight make available
	standing int   // waiters without a request in flight
	spare    int64 // permits that may be left for the next request
	blocked  bool  // the first waiter was refused, and no wake-up has come since
	wakes    uint64
	heard    int64         // permits available according to the last wake-up
	failing  time.Duration // when the requests began to fail; 0 if the last one did not
	askedAt  time.Duration // when the oldest request in flight was made

	member    *pubsub.Membership // of the channel that announces permits; nil until a waiter was refused
	confirmed bool               // the subscription is confirmed
	timer     timer.Timer        // for the next re-check or the end of a pause
	grantAt   time.Duration      // when a waiter was last granted permits
	turnAt    time.Duration      // when this client's turn began; 0 outside of a turn
	restUntil time.Duration      // until when this client lets others have the turn
}

// waiter is an acquiring call in a wait queue.
type waiter struct {
	line       *line
	prev, next *waiter
	n          int
	once       bool // it does not wait
	asks       bool // its request is in flight
	out        bool // it has left the queue
	refused    int  // times
	since      time.Duration
	wakes      uint64
	op         counter.Op
	done       chan struct{} // closed when acquired and err are set
	acquired   bool
	err        error
}

// acquire acquires n permits. It waits without limit if wait is nil, and not at all if it is 0.
func (d *manager) acquire(ctx context.Context, key string, n int, wait *time.Duration) (bool, error) {
	if d.core.Closed() {
		return false, errs.ErrClosed
	}
	once := wait != nil && *wait == 0
	started := d.core.Clock.Now()
	part := d.lines.Shard(key)
	part.Lock()
	l := part.Of[key]
	if l == nil {
		l = &line{manager: d, part: part, key: key, spare: plenty}
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
		d.counter.GoAlong(ctx, key)
	} else { // a silent Redis must not hold up a call with a limit of its own
		d.counter.Go(key)
	}
	acquired, err := w.wait(ctx, wait)
	if f := d.core.Hooks.Acquired; f != nil && acquired {
		f("rsemaphore", d.core.UserName(key), d.core.Clock.Now()-started)
	}
	return acquired, err
}

// change runs an operation that makes the given number of permits available; 0 or less for one that makes none
// available.
func (d *manager) change(ctx context.Context, key, code string, permits int64, policy counter.Policy) (int64, error) {
	ask := counter.Ask{Code: code, Policy: policy}
	if permits > 0 {
		h := &handing{manager: d, key: key, permits: permits}
		ask.Then, ask.Put, ask.Withdrawn = h, h.put, h.withdrawn
	}
	return d.counter.Do(ctx, key, ask)
}

// joinLocked adds a call at the end of the queue.
func (l *line) joinLocked(n int, once bool) *waiter {
	w := &waiter{line: l, n: n, once: once, since: l.manager.core.Clock.Now(), prev: l.tail, done: make(chan struct{})}
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

// endLocked removes a waiter with the outcome of its call.
func (w *waiter) endLocked(acquired bool, err error) {
	w.leaveLocked()
	w.acquired, w.err = acquired, err
	close(w.done)
}

// leaveLocked removes a waiter. The next one may have been waiting only for it.
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

// closeLocked ends an empty queue.
func (l *line) closeLocked() {
	e := l.manager.core
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

// wait waits for the outcome of a call.
func (w *waiter) wait(ctx context.Context, limit *time.Duration) (bool, error) {
	e := w.line.manager.core
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
	l.manager.counter.Go(l.key)
	return false, why
}

// patience is how long a request may be unanswered before Redis counts as silent.
const patience = 50 * time.Millisecond

// silentLocked reports whether it is unknown if permits are available: Redis's last reply was an error, or it takes too
// long.
func (w *waiter) silentLocked() bool {
	l := w.line
	now := l.manager.core.Clock.Now()
	return l.failing != 0 || l.asked > 0 && now-l.askedAt > patience
}

// unavailable returns the error of a wait that ended while Redis was silent: why is the context's error, or nil if the
// wait time was over.
func unavailable(why error) error {
	if why == nil {
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, script.ErrNoAnswer)
	}
	return fmt.Errorf("%w: %w", why, errs.ErrUnavailable)
}
