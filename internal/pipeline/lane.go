package pipeline

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// lane is the queue before one node.
type lane struct {
	batcher *Batcher

	mu      sync.Mutex // guards all below
	queues  [2]fifo    // by Class
	started [maxStuck]time.Time
	load    int // of the latest flushes: eight times their average number of calls
	waiting int // calls in the queues
	flying  int // flushes under way, those on callers' own goroutines included
	timer   *time.Timer
}

// pending is a call that somebody waits for on another goroutine.
type pending struct {
	call  *script.Call
	late  Listener
	done  chan struct{} // 1: one token when the call has finished
	state atomic.Int32

	prev, next *pending // guarded by the lane's mu while queued
	queued     bool
}

const (
	waiting int32 = iota
	finished
	abandoned
)

// job is a flush for a worker.
type job struct {
	lane  *lane
	slot  int
	calls []*pending
}

// enter takes a flush for a lone call on the caller's goroutine; leave gives it back.
func (l *lane) enter() (slot int, ok bool) {
	if l.batcher.plain {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.queues[Normal].empty() || !l.queues[Urgent].empty() || l.gathersLocked() || !l.mayLocked() {
		return 0, false
	}
	l.flying++
	l.load -= l.load / 8
	return l.markLocked(), true
}

func (l *lane) leave(slot int) {
	if l.batcher.plain {
		return
	}
	l.mu.Lock()
	l.flying--
	if slot >= 0 {
		l.started[slot] = time.Time{}
	}
	var next job
	ok := l.mayLocked()
	if ok {
		next, ok = l.takeLocked()
	}
	l.mu.Unlock()
	if ok {
		l.batcher.dispatch(next)
	}
}

// gathersLocked reports whether a call had better wait for company although a flush could start: another one is under
// way, and lately flushes had several calls each.
func (l *lane) gathersLocked() bool {
	average := l.load / 8
	return l.flying > 0 && average >= crowd && l.waiting < average/2
}

// mayLocked reports whether one more flush may start now.
func (l *lane) mayLocked() bool {
	if l.batcher.plain || l.flying < maxFlushes {
		return true
	}
	return l.flying < maxStuck && l.youngLocked() < maxFlushes
}

// wait sends the call from another goroutine and waits for its end, for ctx or for the limit.
func (l *lane) wait(ctx context.Context, call *script.Call, ask Ask) error {
	p, _ := l.batcher.free.Get().(*pending)
	if p == nil {
		p = &pending{done: make(chan struct{}, 1)}
	}
	p.call, p.late = call, ask.Late
	p.state.Store(waiting)
	l.submit(p, ask.Class)

	ended := l.batcher.life.Done()
	var limit <-chan time.Time
	switch {
	case ask.Usual: // a timer for each call would cost more than to queue it
		ended = l.batcher.bound().Done()
	case ask.Limit > 0:
		timer := time.NewTimer(ask.Limit)
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case <-p.done:
		return l.recycle(p)
	case <-ctx.Done():
	case <-limit:
	case <-ended:
	}
	if l.withdraw(p, ask.Class) {
		return notSent(ctx)
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // else nothing says that the node is silent
		l.batcher.Reload()
	}
	if p.late != nil {
		p.late = l.batcher.desert(p.late)
	}
	if !p.state.CompareAndSwap(waiting, abandoned) {
		if p.late != nil {
			l.batcher.rejoin()
		}
		<-p.done
		return l.recycle(p)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return script.ErrNoAnswer
}

func (l *lane) recycle(p *pending) error {
	err := p.call.Err()
	p.call, p.late = nil, nil
	l.batcher.free.Put(p)
	return err
}

// finish tells the waiter, or the one who cares when nobody waits any more.
func (p *pending) finish() {
	if p.state.CompareAndSwap(waiting, finished) {
		p.done <- struct{}{} // never blocks: one token a use
		return
	}
	if p.late != nil {
		p.late.Late(p.call)
	}
}

// submit queues p and starts a flush if one may start.
func (l *lane) submit(p *pending, class Class) {
	l.mu.Lock()
	l.queues[class].push(p)
	l.waiting++
	var next job
	var ok bool
	if (class == Urgent || !l.gathersLocked()) && l.mayLocked() {
		next, ok = l.takeLocked()
	} else {
		l.watchLocked()
	}
	l.mu.Unlock()
	if ok {
		l.batcher.dispatch(next)
	}
}

// withdraw takes p out of the queue and reports whether it was still there.
func (l *lane) withdraw(p *pending, class Class) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.queued {
		return false
	}
	l.queues[class].remove(p)
	l.waiting--
	return true
}

// takeLocked takes the next flush from the queues: urgent calls first, which leave some room for the others.
func (l *lane) takeLocked() (job, bool) {
	room, share := maxBatch, urgentShare
	if l.batcher.plain {
		room, share = 1, 1
	}
	urgent, normal := &l.queues[Urgent], &l.queues[Normal]
	if normal.empty() {
		share = room
	}
	left := share
	calls := urgent.take(nil, &left)
	room -= share - left
	calls = normal.take(calls, &room)
	l.waiting -= len(calls)
	if calls == nil {
		return job{}, false
	}
	l.flying++
	l.load += len(calls) - l.load/8
	return job{lane: l, calls: calls, slot: l.markLocked()}, true
}

// markLocked notes when a flush started.
func (l *lane) markLocked() int {
	for i := range l.started {
		if l.started[i].IsZero() {
			l.started[i] = time.Now()
			return i
		}
	}
	return -1
}

// watchLocked sees to it that the queue moves on although the flushes under way are stuck.
func (l *lane) watchLocked() {
	if l.timer != nil {
		return
	}
	l.timer = time.AfterFunc(stall, l.unstick)
}

// unstick starts a flush beyond those that are stuck.
func (l *lane) unstick() {
	l.mu.Lock()
	l.timer = nil
	if l.queues[Normal].empty() && l.queues[Urgent].empty() || l.batcher.life.Err() != nil {
		l.mu.Unlock()
		return
	}
	l.watchLocked()
	var next job
	var ok bool
	if l.mayLocked() {
		next, ok = l.takeLocked()
	}
	l.mu.Unlock()
	if ok {
		l.batcher.dispatch(next)
	}
}

func (l *lane) youngLocked() int {
	now, young := time.Now(), 0
	for i, left := 0, l.flying; left > 0 && i < len(l.started); i++ {
		at := &l.started[i]
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
func (l *lane) next(slot int) (job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying--
	if slot >= 0 {
		l.started[slot] = time.Time{}
	}
	if !l.mayLocked() {
		return job{}, false
	}
	return l.takeLocked()
}

// dispatch hands a flush to a parked worker, or to a new one.
func (b *Batcher) dispatch(j job) {
	select {
	case b.jobs <- j:
	default:
		go b.work(j, b.hire())
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
			j, ok = j.lane.next(j.slot)
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
	b := j.lane.batcher
	if len(j.calls) == 1 {
		b.send(b.bound(), j.calls[0].call)
		j.calls[0].finish()
		return
	}
	calls := make([]*script.Call, len(j.calls))
	for i, p := range j.calls {
		calls[i] = p.call
	}
	b.sendAll(b.bound(), calls)
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
