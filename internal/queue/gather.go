package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	maxBatch = 100     // messages in one script call
	maxBytes = 1 << 20 // bytes of payloads in one script call, unless the first alone has more
)

// gatherer sends the operations of many goroutines in few calls: a lone one goes out at once, those that come while a call
// is under way form the next one. Its goroutines exist only while there is something to send; the registry waits for them.
type gatherer[T any] struct {
	crew   *crew
	send   func(batch []*entry[T]) // sends, and fills in result and err of each
	weight func(*T) int
	ahead  bool // a call that is full may go out while one is under way

	mu      sync.Mutex // guards all below, and busy of each errand
	queue   []*entry[T]
	unsent  int // entries in the queue that were given up
	running int
}

// errand is operations that were asked for together. They are sent in their order, and no two calls have some of them at a time.
type errand[T any] struct {
	entries []entry[T]
	left    atomic.Int32  // of them, neither answered nor given up
	done    chan struct{} // closed when none is left
	busy    bool          // some are being sent
	one     [1]entry[T]   // room for a lone one
}

// entry is one operation.
type entry[T any] struct {
	value  T
	result int64 // this and err may be read once the state is answered
	err    error
	state  atomic.Int32
	errand *errand[T]
}

const (
	queued int32 = iota
	sent
	answered
	givenUp
)

// add puts an operation into the queue, and returns it.
func (g *gatherer[T]) add(value T) *entry[T] { return &g.addAll(value).entries[0] }

// addAll puts operations into the queue, to be sent together as far as that is allowed.
func (g *gatherer[T]) addAll(values ...T) *errand[T] {
	e, first := g.join(values)
	if first {
		g.crew.Go(g.run) // ends when the queue is empty; the registry's Drain waits for it
	}
	return e
}

// do is addAll for a caller that cannot stop waiting: a lone operation is sent on its own goroutine, which saves two switches.
func (g *gatherer[T]) do(values ...T) *errand[T] {
	e, first := g.join(values)
	if first && g.flush() {
		g.crew.Go(g.run) // as above: there is more
	}
	return e
}

// join puts operations into the queue, and reports whether its caller has to see to the queue.
func (g *gatherer[T]) join(values []T) (e *errand[T], first bool) {
	e = &errand[T]{done: make(chan struct{})}
	e.entries = e.one[:min(len(values), 1)]
	if len(values) > 1 {
		e.entries = make([]entry[T], len(values))
	}
	if e.left.Store(int32(len(values))); len(values) == 0 {
		close(e.done)
		return e, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, v := range values {
		e.entries[i].value, e.entries[i].errand = v, e
		g.queue = append(g.queue, &e.entries[i])
	}
	first = g.mayLocked()
	if first {
		g.running++
	}
	return e, first
}

// mayLocked reports whether one more call may go out: the first one, or a second one that nothing more would join.
func (g *gatherer[T]) mayLocked() bool {
	return g.running == 0 && len(g.queue) > 0 || g.ahead && g.running == 1 && len(g.queue)-g.unsent >= maxBatch
}

func (g *gatherer[T]) run() {
	for g.flush() {
	}
}

// flush sends one batch, and reports whether there may be another one: without one the queue is nobody's any more, or another's.
func (g *gatherer[T]) flush() bool {
	batch := g.next()
	if batch == nil {
		return false
	}
	g.send(batch)
	for _, e := range batch {
		e.end(answered)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range batch {
		e.errand.busy = false
	}
	g.running--
	again := g.mayLocked()
	if again {
		g.running++
	}
	return again
}

// end notes that an operation is answered or given up.
func (e *entry[T]) end(state int32) {
	e.state.Store(state)
	if e.errand.left.Add(-1) == 0 {
		close(e.errand.done)
	}
}

// next takes the next batch, nil if there is nothing that may be sent: the goroutine then counts as ended.
func (g *gatherer[T]) next() []*entry[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := make([]*entry[T], 0, min(len(g.queue), maxBatch))
	weight, n := 0, 0
	for _, e := range g.queue {
		w := g.weight(&e.value)
		if e.errand.busy || len(batch) == maxBatch || len(batch) > 0 && weight+w > maxBytes {
			break
		}
		n++
		if e.state.CompareAndSwap(queued, sent) {
			batch = append(batch, e)
			weight += w
		} else {
			g.unsent--
		}
	}
	clear(g.queue[:n])
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil
	}
	if len(batch) == 0 {
		g.running-- // what is left waits for the call that has the first part of it
		return nil
	}
	for _, e := range batch {
		e.errand.busy = true
	}
	return batch
}

// wait waits until all operations are answered or ctx is done. What was not sent by then never is.
func (g *gatherer[T]) wait(ctx context.Context, e *errand[T]) {
	select {
	case <-e.done:
		return
	default:
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		g.giveUp(e)
	}
}

// outcome returns the result of an operation whose wait has ended for the given reason.
func (e *entry[T]) outcome(reason error) (int64, error) {
	if e.state.Load() != answered {
		return 0, reason
	}
	return e.result, e.err
}

// giveUp has operations that were not sent never be. The queue is freed of such ones when they are the most of it: in an
// outage callers come and go, and all that they wanted to send would stay.
func (g *gatherer[T]) giveUp(e *errand[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range e.entries {
		if e.entries[i].state.CompareAndSwap(queued, givenUp) {
			e.entries[i].end(givenUp)
			g.unsent++
		}
	}
	if g.unsent > 0 && 2*g.unsent > len(g.queue) {
		g.queue = slices.DeleteFunc(g.queue, func(e *entry[T]) bool { return e.state.Load() == givenUp })
		g.unsent = 0
	}
}

// settled waits until the operation is answered or ctx is done. It goes on even so.
func (e *entry[T]) settled(ctx context.Context) (int64, error) {
	select {
	case <-e.errand.done:
		return e.result, e.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: no answer yet", errs.ErrUnknown)
	}
}

func (e *entry[T]) settledYet() bool { return e.state.Load() == answered }

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
