package rmultilock

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
)

// manager has the wait queues of a client's RedLocks. It is safe for concurrent use.
type manager struct {
	mu     sync.Mutex // guards the queues, and what of them is not a channel
	queues map[any]*queue
}

func newManager(*core.Core) *manager { return &manager{queues: map[any]*queue{}} }

// queue lets the calls of a client that wait for one RedLock ask for it one at a time, in the order in which they came. It exists while
// there are such calls.
type queue struct {
	calls int
	token chan struct{} // 1: the call that has taken it asks
	freed chan struct{} // 1: the lock was released here
	since time.Time     // failed of the call that asks, or asked last
	last  error         // of that call
}

// queueKey identifies the queue of a RedLock by its locks. It is nil where there is none: for a multi-lock, for locks that are neither
// plain nor fenced, and for a call that nests in one of the locks, since the call that asks may be waiting for just that hold.
func (l *Lock) queueKey(ctx context.Context) (key any) {
	for _, m := range l.members {
		if l.kind != red || !m.sendable(ctx) {
			return nil
		}
		key = [2]any{key, *m.name}
	}
	return key
}

// join has a call that may wait stand in its lock's queue. It returns when the call may ask, or the error of one whose time is over.
// leave is to be called in any case.
func (c *call) join() (leave func(), err error) {
	m, key := c.lock.manager, c.lock.queueKey(c.ctx)
	if key == nil || c.mode != blocks || c.outer != nil {
		return func() {}, nil
	}
	m.mu.Lock()
	q := m.queues[key]
	if q == nil {
		q = &queue{token: make(chan struct{}, 1), freed: make(chan struct{}, 1), since: c.failed}
		q.token <- struct{}{}
		m.queues[key] = q
	}
	q.calls++
	m.mu.Unlock()
	asks := c.receive(q.token, c.within(math.MaxInt64))
	leave = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if asks {
			q.since, q.last = c.failed, c.last
			q.token <- struct{}{}
		}
		if q.calls--; q.calls == 0 {
			delete(m.queues, key)
		}
	}
	c.queue = q
	err = c.over() // the user's code, and so not under the mutex
	m.mu.Lock()
	if c.last = q.last; q.since.IsZero() || q.since.After(c.failed) {
		c.failed = q.since
	}
	m.mu.Unlock()
	if err == nil && c.lacking() { // those before it have asked
		err = errs.ErrNotAcquired
	}
	if err != nil {
		err = c.because(err)
	}
	return leave, err
}

// receive waits for a token, ctx or so long, and reports whether the token came.
func (c *call) receive(tokens <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-tokens:
		return true
	case <-timer.C:
	case <-c.ctx.Done():
	}
	return false
}

// wakeNext ends, after a release, the pause of the client's call that asks. One time in eight it does not: other clients may be waiting,
// and nobody would wake them.
func (l *Lock) wakeNext(ctx context.Context) {
	key := l.queueKey(ctx)
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	if q := l.manager.queues[key]; q != nil && rand.N(8) > 0 {
		select {
		case q.freed <- struct{}{}:
		default: // a token is there already
		}
	}
}
