package wheel

import (
	"sync"
	"time"
)

// Wheel fires timers. Its methods may be called from any goroutine, and all but Close from fire too.
type Wheel struct {
	now  func() time.Duration
	fire func(due []*Timer)

	wake    chan struct{} // holds one wake-up; made with the goroutine, never closed
	running sync.WaitGroup

	mu         sync.Mutex // guards all below; not held while now or fire runs
	slots      slots
	count      int
	sleepUntil int64 // tick at which the goroutine wakes by itself; 0 while it is awake or on its way
	started    bool
	closed     bool
}

// New returns a wheel on the clock now, the time since some epoch: never negative, never going back, free to jump
// ahead. The wheel calls now from New and from its goroutine only.
//
// What is due is handed to fire, at most 512 timers at a time, one call after another on the wheel's goroutine: while
// fire runs nothing else fires. Timers in due are stopped, and may be set again. The slice is the wheel's again once
// fire returns.
func New(now func() time.Duration, fire func(due []*Timer)) *Wheel {
	w := &Wheel{now: now, fire: fire}
	w.slots.init(tickOf(now()))
	return w
}

// Set schedules t for the time at of the wheel's clock, and moves it when it is set already. A time that has passed is
// due at once. After Close it does nothing.
func (w *Wheel) Set(t *Timer, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if t.set() {
		w.slots.unlink(t)
	} else {
		w.count++
	}
	t.tick = tickOf(at)
	start := w.slots.link(t)
	if !w.started {
		w.startLocked()
	} else if start < w.sleepUntil {
		w.wakeLocked()
	}
}

// Stop ends t's wait. It returns true when t was set and will not fire, and false when it was stopped already or is in a batch
// for fire, which may be running.
func (w *Wheel) Stop(t *Timer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.set() {
		return false
	}
	w.slots.unlink(t)
	w.count--
	return true
}

// Len returns the number of timers that are set.
func (w *Wheel) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Each calls fn for the timers that were set when it began, in no order, until fn returns false. Some may have fired
// or been stopped before fn sees them. It copies the whole list under the wheel's mutex: it is for shutdown.
func (w *Wheel) Each(fn func(*Timer) bool) {
	w.mu.Lock()
	all := w.slots.appendTo(make([]*Timer, 0, w.count))
	w.mu.Unlock()
	for _, t := range all {
		if !fn(t) {
			return
		}
	}
}

// Close ends the goroutine and waits for it, a running fire included: fire must not call it. Timers that have not fired
// stay set, for Stop, Len and Each, but never fire. A second Close waits as well.
func (w *Wheel) Close() {
	w.mu.Lock()
	w.closed = true
	if w.started {
		w.wakeLocked()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// startLocked makes the channel as well, so that a wheel belongs to the synctest bubble that first uses it.
func (w *Wheel) startLocked() {
	w.started = true
	w.wake = make(chan struct{}, 1)
	w.running.Go(w.run) // ended by Close, which waits for it
}

func (w *Wheel) wakeLocked() {
	w.sleepUntil = 0
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
