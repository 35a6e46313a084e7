package core

import (
	"sync"
	"time"
)

// closeTail is how long Close waits for releases and last settlements beyond the grace. What was sent last then has
// until [ioTail] to come back, and what was sent before Close until [endTail].
const (
	closeTail = 2 * time.Second
	ioTail    = 2500 * time.Millisecond
	endTail   = 3 * time.Second
	patience  = 500 * time.Millisecond // with the replies to calls in flight, before nobody waits for them any more
	lastTail  = 500 * time.Millisecond // of closeTail, for last settlements only
)

// Close ends all waits and contexts, gives holders the grace to release, releases the rest unless it is to be
// abandoned, and ends every goroutine.
func (e *Core) Close() {
	if !e.closed.CompareAndSwap(false, true) {
		return
	}
	close(e.closing)
	began := time.Now()
	e.Batch.EndBy(began.Add(e.CloseGrace + ioTail))
	var router sync.WaitGroup
	router.Go(e.Router.Close) // nobody waits for a message any more
	for _, h := range e.registered() {
		h.Closing()
	}
	e.grace()
	e.drain(began.Add(e.CloseGrace + closeTail))
	e.Batch.Stop()
	e.Timers.Close()
	e.Workers.Close()
	e.Batch.Close()
	for _, h := range e.registered() {
		h.Wait(began.Add(e.CloseGrace + endTail))
	}
	router.Wait()
}

// drain releases what is still held and makes the last settlements, all at the same time: with Redis gone each takes as
// long as it may.
func (e *Core) drain(end time.Time) {
	var all sync.WaitGroup
	all.Go(func() { e.settle(end) })
	for _, h := range e.registered() {
		all.Go(func() { h.Drain(closeTail) })
	}
	all.Wait()
}

// settle makes the last settlements. What calls in flight may have taken is among them: those that are not answered soon are given up,
// like a call whose context ends. One whose context cannot end is waited for, for what is left of the grace too: it ends with the bound
// on its I/O. If that is later, what it was granted is left to its lease.
func (e *Core) settle(end time.Time) {
	if !e.quiet(patience) {
		e.Batch.EndWaits()
		e.quiet(time.Until(end) - lastTail)
	}
	e.Settler.Close(time.Until(end))
}

// grace waits until everything is released or the close grace is over.
func (e *Core) grace() { e.await(e.CloseGrace, func() bool { return e.open() == 0 }) }

// quiet waits until no call is under way that Begin has counted, given up or not, and reports whether that was so within
// the limit.
func (e *Core) quiet(limit time.Duration) bool {
	return e.await(limit, func() bool { return e.underWay.Load() <= 0 && e.Batch.Abandoned() == 0 })
}

// await waits until cond holds, which is asked again whenever something was freed, and reports whether it did within
// the limit.
func (e *Core) await(limit time.Duration, cond func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !cond() {
		select {
		case <-e.freed:
		case <-timer.C:
			return false
		}
	}
	return true
}

// Begin counts a call that may leave something taken in Redis, until End. Close waits for it, for a while.
func (e *Core) Begin() { e.underWay.Add(1) }

// Admit is Begin for a call that acquires. It returns false, and has counted nothing, once the client closes.
func (e *Core) Admit() bool {
	e.Begin()
	if e.Closed() { // asked after Begin: either Close sees the call, or the call sees Close
		e.End()
		return false
	}
	return true
}

// End takes back Begin: the call has left nothing, or the settler has what it left.
func (e *Core) End() {
	e.underWay.Add(-1)
	e.Freed()
}

// Freed tells a Close that waits that something was released, or has ended.
func (e *Core) Freed() {
	if !e.Closed() {
		return
	}
	select {
	case e.freed <- struct{}{}:
	default: // a token is there already
	}
}

func (e *Core) open() int {
	n := 0
	for _, h := range e.registered() {
		n += h.Open()
	}
	return n
}
