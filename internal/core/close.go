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
func (c *Core) Close() {
	if !c.closed.CompareAndSwap(false, true) {
		return
	}
	close(c.closing)
	began, confirmed := time.Now(), c.CloseGrace+c.Batch.ConfirmationTime()
	c.Batch.EndBy(began.Add(confirmed + ioTail))
	var router sync.WaitGroup
	router.Go(c.Router.Close) // nobody waits for a message any more
	router.Go(c.Topics.Close)
	for _, h := range c.Holders() {
		h.Closing()
	}
	c.grace()
	c.drain(began.Add(confirmed + closeTail))
	c.Batch.Stop()
	c.Timers.Close()
	c.Workers.Close()
	c.Answers.Close()
	c.Batch.Close()
	for _, h := range c.Holders() {
		h.Wait(began.Add(confirmed + endTail))
	}
	router.Wait()
}

// drain releases what is still held and makes the last settlements, all at the same time: with Redis gone each takes as
// long as it may.
func (c *Core) drain(end time.Time) {
	var all sync.WaitGroup
	all.Go(func() { c.settle(end) })
	for _, h := range c.Holders() {
		all.Go(func() { h.Drain(closeTail) })
	}
	all.Wait()
}

// settle makes the last settlements. What calls in flight may have taken is among them: those that are not answered soon are given up,
// like a call whose context ends. One whose context cannot end is waited for, for what is left of the grace too: it ends with the bound
// on its I/O. If that is later, what it was granted is left to its lease.
func (c *Core) settle(end time.Time) {
	if !c.quiet(patience) {
		c.Batch.EndWaits()
		c.quiet(time.Until(end) - lastTail)
	}
	c.Settler.Close(time.Until(end))
}

// grace waits until everything is released or the close grace is over.
func (c *Core) grace() { c.await(c.CloseGrace, func() bool { return c.Open() == 0 }) }

// quiet waits until no call is under way that Begin has counted, given up or not, and reports whether that was so within
// the limit.
func (c *Core) quiet(limit time.Duration) bool {
	return c.await(limit, func() bool { return c.underWay.Load() <= 0 && c.Batch.Abandoned() == 0 })
}

// await waits until cond holds, which is asked again whenever something was freed, and reports whether it did within
// the limit.
func (c *Core) await(limit time.Duration, cond func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !cond() {
		select {
		case <-c.freed:
		case <-timer.C:
			return false
		}
	}
	return true
}

// Begin counts a call that may leave something taken in Redis, until End. Close waits for it, for a while.
func (c *Core) Begin() { c.underWay.Add(1) }

// Admit is Begin for a call that acquires. It returns false, and has counted nothing, once the client closes.
func (c *Core) Admit() bool {
	c.Begin()
	if c.Closed() { // asked after Begin: either Close sees the call, or the call sees Close
		c.End()
		return false
	}
	return true
}

// End takes back Begin: the call has left nothing, or the settler has what it left.
func (c *Core) End() {
	c.underWay.Add(-1)
	c.Freed()
}

// Freed tells a Close that waits that something was released, or has ended.
func (c *Core) Freed() {
	if !c.Closed() {
		return
	}
	select {
	case c.freed <- struct{}{}:
	default: // a token is there already
	}
}

// Open returns the number of holds that are not released yet.
func (c *Core) Open() int {
	n := 0
	for _, h := range c.Holders() {
		n += h.Open()
	}
	return n
}
