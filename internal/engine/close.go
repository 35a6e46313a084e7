package engine

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
)

// Close ends all waits and contexts, gives holders the grace to release, releases the rest unless it is to be
// abandoned, and ends every goroutine.
func (e *Engine) Close() {
	if !e.closed.CompareAndSwap(false, true) {
		return
	}
	close(e.closing)
	began := time.Now()
	e.Batch.EndBy(began.Add(e.CloseGrace + ioTail))
	var router sync.WaitGroup
	router.Go(e.Router.Close) // nobody waits for a message any more
	for _, h := range e.holders {
		h.Closing()
	}
	e.grace()
	e.drain()
	e.Batch.Stop()
	e.Watchdog.Close()
	e.Batch.Close()
	for _, h := range e.holders {
		h.Wait(began.Add(e.CloseGrace + endTail))
	}
	router.Wait()
}

// drain releases what is still held and makes the last settlements, all at the same time: with Redis gone each takes as
// long as it may.
func (e *Engine) drain() {
	var all sync.WaitGroup
	all.Go(func() { e.Settler.Close(closeTail) })
	for _, h := range e.holders {
		all.Go(func() { h.Drain(closeTail) })
	}
	all.Wait()
}

// grace waits until everything is released or the close grace is over.
func (e *Engine) grace() {
	timer := time.NewTimer(e.CloseGrace)
	defer timer.Stop()
	for e.open() > 0 {
		select {
		case <-e.freed:
		case <-timer.C:
			return
		}
	}
}

// Freed tells a Close that waits for holders that something was released.
func (e *Engine) Freed() {
	if !e.Closed() {
		return
	}
	select {
	case e.freed <- struct{}{}:
	default: // a token is there already
	}
}

func (e *Engine) open() int {
	n := 0
	for _, h := range e.holders {
		n += h.Open()
	}
	return n
}
