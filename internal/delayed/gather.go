package delayed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	maxBatch = 100     // messages in one script call
	maxBytes = 1 << 20 // bytes of payloads in one script call, unless the first alone has more
	flushers = 1       // calls of one kind under way at a time, for each queue: messages keep the order of their offers
)

// gatherer sends the operations of many goroutines in few calls: a lone one goes out at once, those that come while calls
// are under way form the next one. Its goroutines exist only while there is something to send; the registry waits for them.
type gatherer[T any] struct {
	crew   *crew
	send   func(batch []*entry[T]) // sends, and fills in result and err of each
	weight func(*T) int

	mu      sync.Mutex // guards all below
	queue   []*entry[T]
	running int
}

// entry is one operation.
type entry[T any] struct {
	value  T
	result int64
	err    error
	state  atomic.Int32
	done   chan struct{} // closed when result and err are set
}

const (
	queued int32 = iota
	sent
	givenUp
)

// add puts an operation into the queue, and returns it.
func (g *gatherer[T]) add(value T) *entry[T] {
	e, first := g.join(value)
	if first {
		g.crew.Go(g.run) // ends when the queue is empty; the registry's Drain waits for it
	}
	return e
}

// do is add for a caller that cannot stop waiting: a lone operation is sent on its own goroutine, which saves two switches.
func (g *gatherer[T]) do(value T) *entry[T] {
	e, first := g.join(value)
	if first && g.flush() {
		g.crew.Go(g.run) // as above: others have come meanwhile
	}
	return e
}

// join puts an operation into the queue, and reports whether its caller has to see to the queue.
func (g *gatherer[T]) join(value T) (e *entry[T], first bool) {
	e = &entry[T]{value: value, done: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = append(g.queue, e)
	if g.running < flushers {
		g.running++
		first = true
	}
	return e, first
}

func (g *gatherer[T]) run() {
	for g.flush() {
	}
}

// flush sends one batch, and reports whether there may be another one: without one the queue is nobody's any more.
func (g *gatherer[T]) flush() bool {
	batch := g.next()
	if batch == nil {
		return false
	}
	g.send(batch)
	for _, e := range batch {
		close(e.done)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.running--
		return false
	}
	return true
}

// next takes the next batch, nil if there is nothing to send: the goroutine then counts as ended.
func (g *gatherer[T]) next() []*entry[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	var batch []*entry[T]
	weight, n := 0, 0
	for _, e := range g.queue {
		w := g.weight(&e.value)
		if len(batch) == maxBatch || len(batch) > 0 && weight+w > maxBytes {
			break
		}
		n++
		if e.state.CompareAndSwap(queued, sent) {
			batch = append(batch, e)
			weight += w
		}
	}
	clear(g.queue[:n])
	g.queue = g.queue[n:]
	if len(batch) == 0 {
		g.queue = nil
		g.running--
	}
	return batch
}

// wait waits until the operation is answered or ctx is done. What was not sent by then never is.
func (e *entry[T]) wait(ctx context.Context) (int64, error) {
	select {
	case <-e.done:
		return e.result, e.err
	default:
	}
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		e.state.CompareAndSwap(queued, givenUp)
		return 0, ctx.Err()
	}
}

// settled waits until the operation is answered or ctx is done. It goes on even so.
func (e *entry[T]) settled(ctx context.Context) (int64, error) {
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: no answer yet", errs.ErrUnknown)
	}
}

// answer sets the results of a batch.
func answer[T any](batch []*entry[T], results []int64, err error) {
	for i, e := range batch {
		switch {
		case err != nil:
			e.err = err
		case i >= len(results):
			e.err = errs.ErrUnknown
		default:
			e.result = results[i]
		}
	}
}
