package rmultilock

import (
	"cmp"
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

// queue has one call of a client at a time ask for a RedLock, in order. It exists while there are calls.
type queue struct {
	calls int
	turn  chan struct{} // 1: empty while a call asks
	freed chan struct{} // 1: the lock was released here
	since time.Time     // when rounds began to lack answers; zero if the last one had those that it needs
}

// queueKey identifies the queue of a RedLock. It is nil if there is none, and for a call that may nest: who asks may be waiting for
// the hold that it nests in.
func (l *Lock) queueKey(ctx context.Context) (key any) {
	for _, m := range l.members {
		if l.kind != red || !m.sendable(ctx) {
			return nil
		}
		key = [2]any{key, *m.name}
	}
	return key
}

// join has a call that may wait stand in its queue until it is its turn, or until it has to end. leave is to be called in any case.
func (c *call) join() (leave func(), err error) {
	m, key := c.lock.manager, c.lock.queueKey(c.ctx)
	if key == nil || c.mode != blocks || c.outer != nil {
		return func() {}, nil
	}
	m.mu.Lock()
	q := m.queues[key]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1), freed: make(chan struct{}, 1), since: time.Now()}
		q.turn <- struct{}{}
		m.queues[key] = q
	}
	q.calls++
	m.mu.Unlock()
	asks := c.receive(q.turn, c.within(math.MaxInt64))
	leave = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if asks {
			q.since = c.failed
			q.turn <- struct{}{}
		}
		if q.calls--; q.calls == 0 {
			delete(m.queues, key)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c.queue, c.failed = q, q.since
	if !asks {
		err = cmp.Or(c.ctx.Err(), errs.ErrNotAcquired)
		if !c.failed.IsZero() {
			err = because(err, errNoAnswer)
		}
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

// freed has the client's next call ask at once after a release, but one time in eight: others may wait, and no message tells.
func (l *Lock) freed(ctx context.Context) {
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
