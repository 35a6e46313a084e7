package timer

import "time"

// Task is what a timer is for: a lease, a message, a waiter that is to ask again.
type Task interface {
	// Due is called on the wheel's goroutine when the timer has fired, with the time of the wheel's clock. Nothing else fires
	// until it returns, so it must not wait. The timer is stopped by then, and may be set again.
	Due(now time.Duration)
}

// Timer is one entry of a [Wheel], embedded in what waits. The zero value is a stopped timer. It must not be copied while
// it is set, and belongs to one wheel at a time.
type Timer struct {
	// Task is set once, before the first Set. A pointer costs no allocation.
	Task Task

	next, prev *Timer // nil while stopped; guarded by the wheel's mu
	tick       int64  // guarded by the wheel's mu
}

func (t *Timer) set() bool { return t.next != nil }

func (t *Timer) insertBefore(next *Timer) {
	t.prev, t.next = next.prev, next
	t.prev.next, next.prev = t, t
}

// The methods below are those of a list's head.

func (t *Timer) beHead(tick int64) {
	t.next, t.prev, t.tick = t, t, tick
}

func (t *Timer) empty() bool { return t.next == t }

// spliceBefore moves the whole list to the end of the one that to heads.
func (t *Timer) spliceBefore(to *Timer) {
	if t.empty() {
		return
	}
	first, last := t.next, t.prev
	first.prev, to.prev.next = to.prev, first
	last.next, to.prev = to, last
	t.next, t.prev = t, t
}

func (t *Timer) appendTo(list []*Timer) []*Timer {
	for e := t.next; e != t; e = e.next {
		list = append(list, e)
	}
	return list
}
