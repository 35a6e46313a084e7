package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// nodeQueue is the queue before one node.
type nodeQueue struct {
	batcher  *Batcher
	confirms bool // its calls have to be confirmed

	mu      sync.Mutex // guards all below
	queues  [2]fifo    // by Class
	started [maxStuck]time.Time
	load    int // of the latest flushes: eight times their average number of calls
	waiting int // calls in the queues
	flying  int // flushes in flight, those on callers' own goroutines included
	timer   *time.Timer
}

// pending is a call that somebody waits for on another goroutine.
type pending struct {
	call  *script.Call
	late  Listener
	done  chan struct{} // 1: one token when the call has finished
	state atomic.Int32

	prev, next *pending // guarded by the queue's mu while queued
	queued     bool
}

const (
	waiting int32 = iota
	finished
	abandoned
)

// job is a flush for a worker.
type job struct {
	queue *nodeQueue
	slot  int
	calls []*pending
}

// enter takes a flush for a lone call on the caller's goroutine; leave gives it back.
func (n *nodeQueue) enter() (slot int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.queues[Normal].empty() || !n.queues[Urgent].empty() || n.gathersLocked() || !n.mayLocked() {
		return 0, false
	}
	n.flying++
	n.load -= n.load / 8
	return n.markLocked(), true
}

func (n *nodeQueue) leave(slot int) {
	n.mu.Lock()
	n.flying--
	if slot >= 0 {
		n.started[slot] = time.Time{}
	}
	var next job
	ok := n.mayLocked()
	if ok {
		next, ok = n.takeLocked()
	}
	n.mu.Unlock()
	if ok {
		n.batcher.dispatch(next)
	}
}

// gathersLocked reports whether a call had better wait for company although a flush could start: another one is under
// way, and lately flushes had several calls each.
func (n *nodeQueue) gathersLocked() bool {
	average := n.load / 8
	return n.flying > 0 && average >= crowd && n.waiting < average/2
}

// mayLocked reports whether one more flush may start now.
func (n *nodeQueue) mayLocked() bool {
	if n.confirms { // each holds a connection while it waits, which renewals and releases may need
		return n.flying < maxFlushes
	}
	if n.flying < maxFlushes {
		return true
	}
	return n.flying < maxStuck && n.youngLocked() < maxFlushes
}

// wait sends the call from another goroutine and waits for its end, for ctx or for the limit.
func (n *nodeQueue) wait(ctx context.Context, call *script.Call, ask SendOptions) error {
	p, _ := n.batcher.free.Get().(*pending)
	if p == nil {
		p = &pending{done: make(chan struct{}, 1)}
	}
	p.call, p.late = call, ask.Late
	p.state.Store(waiting)
	n.submit(ask.Class, p)

	var ended <-chan struct{}
	var limit <-chan time.Time
	switch {
	case ask.Limit >= Usual && !n.confirms: // a timer for each call would cost more than to queue it
		ended = n.batcher.bound().Done()
	case ask.Limit > 0:
		d := ask.Limit
		if n.confirms && d == Usual { // the bound on a flush, which takes longer here
			d += n.batcher.ConfirmationTime()
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case <-p.done:
		return n.recycle(p)
	case <-ctx.Done():
	case <-limit:
	case <-ended:
	case <-n.batcher.waits.Done():
	}
	if n.withdraw(p, ask.Class) {
		return fmt.Errorf("%w: %w", script.ErrNotSent, n.batcher.gaveUp(ctx))
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // else nothing says that the node is silent
		n.batcher.Reload()
	}
	var left *abandonedCall
	if p.late != nil {
		left = n.batcher.abandon(p.late)
		p.late = left
	}
	if !p.state.CompareAndSwap(waiting, abandoned) {
		if left != nil {
			left.stay()
		}
		<-p.done
		return n.recycle(p)
	}
	return n.batcher.gaveUp(ctx)
}

func (n *nodeQueue) recycle(p *pending) error {
	err := p.call.Err()
	p.call, p.late = nil, nil
	n.batcher.free.Put(p)
	return err
}

// finish notifies the waiter, or the listener of a call that was given up.
func (p *pending) finish() {
	if p.state.CompareAndSwap(waiting, finished) {
		p.done <- struct{}{} // never blocks: one token a use
		return
	}
	if p.late != nil {
		p.late.Late(p.call)
	}
}

// submit queues calls and starts a flush if one may start.
func (n *nodeQueue) submit(class Class, calls ...*pending) {
	n.mu.Lock()
	for _, p := range calls {
		n.queues[class].push(p)
	}
	n.waiting += len(calls)
	var next job
	var ok bool
	if (class == Urgent || !n.gathersLocked()) && n.mayLocked() {
		next, ok = n.takeLocked()
	}
	if n.waiting > 0 { // the batch that was taken may not have room for all
		n.watchLocked()
	}
	n.mu.Unlock()
	if ok {
		n.batcher.dispatch(next)
	}
}

// withdraw takes p out of the queue and reports whether it was still there.
func (n *nodeQueue) withdraw(p *pending, class Class) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.queued {
		return false
	}
	n.queues[class].remove(p)
	n.waiting--
	return true
}

// takeLocked takes the next flush from the queues: urgent calls first, which leave some room for the others.
func (n *nodeQueue) takeLocked() (job, bool) {
	room, share := maxBatch, urgentShare
	urgent, normal := &n.queues[Urgent], &n.queues[Normal]
	if normal.empty() {
		share = room
	}
	left := share
	calls := urgent.take(nil, &left)
	room -= share - left
	calls = normal.take(calls, &room)
	n.waiting -= len(calls)
	if calls == nil {
		return job{}, false
	}
	n.flying++
	n.load += len(calls) - n.load/8
	return job{queue: n, calls: calls, slot: n.markLocked()}, true
}

// markLocked notes when a flush started.
func (n *nodeQueue) markLocked() int {
	for i := range n.started {
		if n.started[i].IsZero() {
			n.started[i] = time.Now()
			return i
		}
	}
	return -1
}

// watchLocked sees to it that the queue moves on although the flushes in flight are stuck.
func (n *nodeQueue) watchLocked() {
	if n.timer != nil {
		return
	}
	n.timer = time.AfterFunc(stall, n.unstick)
}

// unstick starts a flush beyond those that are stuck.
func (n *nodeQueue) unstick() {
	n.mu.Lock()
	n.timer = nil
	if n.queues[Normal].empty() && n.queues[Urgent].empty() || n.batcher.life.Err() != nil {
		n.mu.Unlock()
		return
	}
	n.watchLocked()
	var next job
	var ok bool
	if n.mayLocked() {
		next, ok = n.takeLocked()
	}
	n.mu.Unlock()
	if ok {
		n.batcher.dispatch(next)
	}
}

func (n *nodeQueue) youngLocked() int {
	now, young := time.Now(), 0
	for i, left := 0, n.flying; left > 0 && i < len(n.started); i++ {
		at := &n.started[i]
		if at.IsZero() {
			continue
		}
		left--
		if now.Sub(*at) < stall {
			young++
		}
	}
	return young
}

// next ends a worker's flush and takes the following one.
func (n *nodeQueue) next(slot int) (job, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flying--
	if slot >= 0 {
		n.started[slot] = time.Time{}
	}
	if !n.mayLocked() {
		return job{}, false
	}
	return n.takeLocked()
}

// dispatch hands a flush to a parked worker, or to a new one.
func (b *Batcher) dispatch(j job) {
	select {
	case b.jobs <- j:
	default:
		go b.work(j, b.hire())
	}
}

// Abandoned returns how many calls are in flight that nobody waits for but a Listener.
func (b *Batcher) Abandoned() int64 { return b.abandoned.Load() }

// abandonedCall is the listener of a call that its caller has given up, and counts it.
type abandonedCall struct {
	listener Listener
	batcher  *Batcher
}

// Late notifies the listener before the call counts as answered.
func (a *abandonedCall) Late(c *script.Call) {
	a.listener.Late(c)
	a.batcher.answered()
}

// stay takes back that the caller has left the call.
func (a *abandonedCall) stay() {
	if l, ok := a.listener.(Leaver); ok {
		l.Stay()
	}
	a.batcher.answered()
}

// abandon counts a call that its caller is about to leave to the listener, and returns the listener to notify in its place.
func (b *Batcher) abandon(l Listener) *abandonedCall {
	b.abandoned.Add(1)
	if l, ok := l.(Leaver); ok {
		l.Leave()
	}
	return &abandonedCall{listener: l, batcher: b}
}

// answered takes a call off those that are abandoned.
func (b *Batcher) answered() {
	b.abandoned.Add(-1)
	if notify := b.OnAnswered; notify != nil {
		notify()
	}
}

// hire reports whether Close waits for one more worker. One that comes later finds everything ended, and ends with it.
func (b *Batcher) hire() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.workers.Add(1)
	}
	return !b.closed
}

// work flushes until there is nothing more to do, then waits a while for the next flush.
func (b *Batcher) work(j job, counted bool) {
	if counted {
		defer b.workers.Done()
	}
	for {
		for ok := true; ok; {
			j.flush()
			if len(j.calls) > 1 {
				runtime.Gosched() // let those who were served ask for more: the next flush is the larger
			}
			j, ok = j.queue.next(j.slot)
		}
		if b.parked.Add(1) > parkedLimit {
			b.parked.Add(-1)
			return
		}
		select {
		case j = <-b.jobs:
			b.parked.Add(-1)
		case <-b.life.Done():
			b.parked.Add(-1)
			return
		}
	}
}

func (j job) flush() {
	b := j.queue.batcher
	if len(j.calls) == 1 && !j.queue.confirms {
		b.send(b.bound(), j.calls[0].call)
		j.calls[0].finish()
		return
	}
	calls := make([]*script.Call, len(j.calls))
	for i, p := range j.calls {
		calls[i] = p.call
	}
	if j.queue.confirms {
		b.sendConfirmed(calls)
	} else {
		b.sendAll(b.bound(), calls)
	}
	for _, p := range j.calls {
		p.finish()
	}
}

// fifo is a queue of pending calls from whose middle one can be taken.
type fifo struct{ head, tail *pending }

func (q *fifo) empty() bool { return q.head == nil }

func (q *fifo) push(p *pending) {
	p.queued, p.prev, p.next = true, q.tail, nil
	if q.tail == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
}

// take moves calls from the queue to the list while there is room, at least one if there is any.
func (q *fifo) take(list []*pending, room *int) []*pending {
	for q.head != nil && *room > 0 {
		p := q.head
		q.remove(p)
		*room -= p.call.Weight()
		list = append(list, p)
	}
	return list
}

func (q *fifo) remove(p *pending) {
	if p.prev == nil {
		q.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.queued, p.prev, p.next = false, nil, nil
}
