package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	maxBatch = 100     // messages in one script call
	maxBytes = 1 << 20 // bytes of payloads in one script call, unless the first alone has more
)

// batcher sends the operations of many goroutines in few calls: a lone one goes out at once, those that come while a call
// is in flight form the next one. Its goroutines exist only while there is something to send; the manager waits for them.
type batcher[T any] struct {
	manager *Manager
	call    func(n callNumber, batch []*entry[T]) *script.Call
	weight  func(*T) int              // bytes of an operation; nil if none has many
	apart   func(a, b *entry[T]) bool // whether two operations may not share a call; nil if all may
	second  secondCall
	after   patience

	mu     sync.Mutex // guards all below, busy of each request and waiting and cancel of each batch
	queue  []*entry[T]
	unsent int // entries in the queue that were given up
	lanes  [2]laneState
}

// secondCall says whether a second call may go out while one is in flight.
type secondCall int

const (
	never secondCall = iota
	whenFull
)

// patience says for how long a call is repeated that is not answered.
type patience int

const (
	whileAwaited patience = iota // by a caller
	untilSettled                 // although its callers have left
)

// laneState says whether a call of a batcher is in flight. Each lane has a record in Redis of its own.
type laneState int

const (
	free laneState = iota
	taken
)

// request is operations that were asked for together. They are sent in their order, and no two calls have some of them at a time.
type request[T any] struct {
	entries []entry[T]
	left    atomic.Int32  // of them, neither answered nor given up
	done    chan struct{} // closed when none is left
	busy    bool          // some are being sent
	one     [1]entry[T]   // room for a lone one
}

// entry is one operation.
type entry[T any] struct {
	value   T
	result  int64 // this and what follows may be read once the state is answered
	err     error
	fate    fate
	earlier script.Outcome // what it may have done before the answer, if it is sent until it is settled
	state   atomic.Int32
	request *request[T]
	batch   *batch[T] // guarded by the batcher's mu; nil until it is sent
}

const (
	queued int32 = iota
	sent
	answered
	givenUp
)

// fate is what became of an operation.
type fate int

const (
	concluded    fate = iota
	neverCame         // all its callers had left, and nothing was done
	maybeArrived      // likewise, and something may have been done
)

// batch is the operations of one call.
type batch[T any] struct {
	entries []*entry[T]
	number  callNumber
	waiting int                // entries whose callers wait
	cancel  context.CancelFunc // ends the repetition; nil before it begins
	err     error              // of the first attempt
	earlier script.Outcome     // of the attempts before the answer
}

// add puts an operation into the queue, and returns it.
func (g *batcher[T]) add(value T) *entry[T] { return &g.addAll(value).entries[0] }

// addAll puts operations into the queue, to be sent together as far as that is allowed.
func (g *batcher[T]) addAll(values ...T) *request[T] {
	r, lane, first := g.join(values)
	if first {
		g.manager.workers.Go(func() { g.run(lane) }) // ends when the queue is empty; Drain waits for it
	}
	return r
}

// addHere is addAll for a caller that bears to wait for one attempt: it makes it on its own goroutine, which saves two switches.
func (g *batcher[T]) addHere(values ...T) *request[T] {
	r, lane, first := g.join(values)
	if !first {
		return r
	}
	b := g.next(lane)
	switch {
	case b == nil:
	case g.attempt(b):
		if lane, again := g.conclude(b); again {
			g.manager.workers.Go(func() { g.run(lane) }) // as above
		}
	default:
		g.manager.workers.Go(func() { // as above
			g.repeat(b)
			if lane, again := g.conclude(b); again {
				g.run(lane)
			}
		})
	}
	return r
}

// join puts operations into the queue, and takes a lane if its caller has to see to the queue.
func (g *batcher[T]) join(values []T) (r *request[T], lane int, first bool) {
	r = &request[T]{done: make(chan struct{})}
	r.entries = r.one[:min(len(values), 1)]
	if len(values) > 1 {
		r.entries = make([]entry[T], len(values))
	}
	if r.left.Store(int32(len(values))); len(values) == 0 {
		close(r.done)
		return r, 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, v := range values {
		r.entries[i].value, r.entries[i].request = v, r
		g.queue = append(g.queue, &r.entries[i])
	}
	lane, first = g.takeLaneLocked()
	return r, lane, first
}

// takeLaneLocked takes a lane if one more call may go out: the first one, or a second one that nothing more would join.
func (g *batcher[T]) takeLaneLocked() (lane int, ok bool) {
	inFlight := 0
	for i, state := range g.lanes {
		if state == taken {
			inFlight++
		} else {
			lane = i
		}
	}
	ok = inFlight == 0 && len(g.queue) > 0 || g.second == whenFull && inFlight == 1 && len(g.queue)-g.unsent >= maxBatch
	if ok {
		g.lanes[lane] = taken
	}
	return lane, ok
}

// run sends batches on a lane that it has taken, until the queue is nobody's any more, or another's.
func (g *batcher[T]) run(lane int) {
	for again := true; again; {
		b := g.next(lane)
		if b == nil {
			return
		}
		if g.after == untilSettled {
			c, earlier, err := g.manager.end(func() *script.Call { return g.call(b.number, b.entries) })
			b.earlier = earlier
			b.answer(c, err)
		} else if !g.attempt(b) {
			g.repeat(b)
		}
		lane, again = g.conclude(b)
	}
}

// next makes the next batch. It returns nil, and leaves the lane, if there is nothing that may be sent.
func (g *batcher[T]) next(lane int) *batch[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &batch[T]{entries: make([]*entry[T], 0, min(len(g.queue), maxBatch))}
	bytes, n := 0, 0
	for _, e := range g.queue {
		size := 0
		if g.weight != nil {
			size = g.weight(&e.value)
		}
		if g.apart != nil && len(b.entries) > 0 && g.apart(b.entries[0], e) {
			break
		}
		if e.request.busy || len(b.entries) == maxBatch || len(b.entries) > 0 && bytes+size > maxBytes {
			break
		}
		n++
		if e.state.CompareAndSwap(queued, sent) {
			e.batch = b
			b.entries = append(b.entries, e)
			bytes += size
		} else {
			g.unsent--
		}
	}
	clear(g.queue[:n])
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil
	}
	if len(b.entries) == 0 {
		g.lanes[lane] = free // what is left waits for the call that has the first part of it
		return nil
	}
	for _, e := range b.entries {
		e.request.busy = true
	}
	b.waiting = len(b.entries)
	b.number = callNumber{lane: lane, number: g.manager.core.NextNumber()}
	return b
}

// attempt sends a batch once, and reports whether that was answered.
func (g *batcher[T]) attempt(b *batch[T]) bool {
	call := g.call(b.number, b.entries)
	ctx := context.Background() //nolint:forbidigo // bounded by the limit
	err := g.manager.core.Batch.Do(ctx, call, background())
	if script.Silent(err) || script.Transient(err) && !script.Refused(err) {
		b.err = err
		return false
	}
	b.answer(call, core.Explain(err))
	return true
}

// repeat sends a batch again until it is answered, under its number: Redis acts once. When nobody waits any more it stops, and the
// next call of the lane, which has a higher number, keeps the lost one from acting late.
func (g *batcher[T]) repeat(b *batch[T]) {
	//nolint:forbidigo // ended with the last caller, and while Redis still knows the number
	ctx, cancel := context.WithTimeout(context.Background(), repeatLimit)
	defer cancel()
	g.mu.Lock()
	b.cancel = cancel
	if b.waiting == 0 {
		cancel()
	}
	g.mu.Unlock()
	c, _, err := g.manager.core.Query(ctx, func() *script.Call { return g.call(b.number, b.entries) })
	err = doubted(err, script.Judge(b.err))
	b.answer(c, err)
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	for _, e := range b.entries {
		if e.fate = neverCame; errors.Is(err, errs.ErrUnknown) {
			e.fate = maybeArrived
		}
	}
}

// answer sets the results of a batch.
func (b *batch[T]) answer(c *script.Call, err error) {
	var results []int64
	if err == nil {
		results, err = c.Ints()
	}
	switch {
	case err != nil:
	case len(results) > 0 && results[0] < 0:
		err = newerLayout(-results[0])
	case len(results) == 0:
		err = fmt.Errorf("%w: %w", errs.ErrUnknown, errForgotten)
	}
	for i, e := range b.entries {
		e.earlier = b.earlier
		switch {
		case err != nil:
			e.err = err
		case i < len(results):
			e.result, e.err = results[i], c.Unconfirmed
		}
	}
}

// errForgotten is the error of a call whose number Redis has passed.
var errForgotten = errors.New("the reply is not remembered any more")

// conclude ends the operations of a batch, and takes a lane for the next one.
func (g *batcher[T]) conclude(b *batch[T]) (lane int, again bool) {
	for _, e := range b.entries {
		e.end(answered)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range b.entries {
		e.request.busy = false
	}
	g.lanes[b.number.lane] = free
	return g.takeLaneLocked()
}

// end notes that an operation is answered or given up.
func (e *entry[T]) end(state int32) {
	e.state.Store(state)
	if e.request.left.Add(-1) == 0 {
		close(e.request.done)
	}
}

// endLimit bounds the wait for the end of a repetition that nobody waits for any more: it is either at rest or gives up at once.
const endLimit = 20 * time.Millisecond

// abandoned are the errors of operations whose caller has left.
type abandoned struct{ sent, unsent error }

// wait waits until all operations are answered, ctx is done or, if that has no deadline, the call timeout is over. What was not sent
// by then never is.
func (g *batcher[T]) wait(ctx context.Context, r *request[T]) (left abandoned) {
	select {
	case <-r.done:
		return left
	default:
	}
	ctx, cancel := g.manager.core.Bound(ctx)
	defer cancel()
	select {
	case <-r.done:
		return left
	case <-ctx.Done():
	}
	if g.giveUp(r) == endsNow {
		timer := time.NewTimer(endLimit)
		defer timer.Stop()
		select {
		case <-r.done: // with what became of it
		case <-timer.C:
		}
	}
	return abandoned{
		sent:   core.Conclude(ctx, script.Unknown, script.ErrNoAnswer),
		unsent: core.Conclude(ctx, script.NotDone, script.ErrNotSent),
	}
}

// outcome returns the result of an operation whose caller waits no more.
func (e *entry[T]) outcome(left abandoned) (int64, error) {
	state := e.state.Load()
	switch {
	case state == givenUp || state == answered && e.fate == neverCame:
		return 0, left.unsent
	case state == answered && e.fate == concluded:
		return e.result, e.err
	}
	return 0, left.sent
}

// ending says what a request does whose caller has left.
type ending int

const (
	lingers ending = iota
	endsNow
)

// giveUp notes that nobody waits for a request any more. The queue is freed of what was given up when that is the most of it: in an
// outage callers come and go, and all that they wanted to send would stay.
func (g *batcher[T]) giveUp(r *request[T]) (end ending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range r.entries {
		e := &r.entries[i]
		switch {
		case e.state.CompareAndSwap(queued, givenUp):
			e.end(givenUp)
			g.unsent++
		case e.batch != nil:
			end = max(end, e.batch.leaveLocked())
		}
	}
	if g.unsent > 0 && 2*g.unsent > len(g.queue) {
		g.queue = slices.DeleteFunc(g.queue, func(e *entry[T]) bool { return e.state.Load() == givenUp })
		g.unsent = 0
	}
	return end
}

func (b *batch[T]) leaveLocked() ending {
	if b.waiting--; b.waiting > 0 || b.cancel == nil {
		return lingers
	}
	b.cancel()
	return endsNow
}

// settled waits until the operation is answered or ctx is done. It goes on even so.
func (e *entry[T]) settled(ctx context.Context) (int64, error) {
	select {
	case <-e.request.done:
		return e.result, e.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", errs.ErrUnknown, script.ErrNoAnswer)
	}
}

func (e *entry[T]) isAnswered() bool { return e.state.Load() == answered }

// mayWork reports whether there is an operation without an answer yet, or with a good one.
func (e *entry[T]) mayWork() bool { return e != nil && (!e.isAnswered() || e.err == nil) }
