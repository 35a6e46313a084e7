package timer

import (
	"sync"
	"time"
)

const (
	tick     = time.Millisecond
	maxSleep = int64(time.Second / tick) // in ticks, while timers are set
	maxMoves = 1000                      // bounds the work under one hold of the mutex
	maxBatch = 512                       // timers that fire between two looks at what else is due
)

// Wheel fires timers. Its methods may be called from any goroutine, and all but Close from a task's Due too.
type Wheel struct {
	now  func() time.Duration
	fire func(due []*Timer) // tests replace it

	wake    chan struct{} // holds one wake-up; made with the goroutine, never closed
	running sync.WaitGroup

	mu         sync.Mutex // guards all below; not held while now or a task runs
	slots      slots
	count      int
	sleepUntil int64 // tick at which the goroutine wakes by itself; 0 while it is awake or on its way
	started    bool
	closed     bool
}

// New returns a wheel on the clock now, the time since some epoch: never negative, never going back, free to jump
// ahead. The wheel calls now from New and from its goroutine only.
func New(now func() time.Duration) *Wheel {
	w := &Wheel{now: now}
	w.fire = w.dispatch
	w.slots.init(tickOf(now()))
	return w
}

// dispatch calls the tasks of timers that have fired.
func (w *Wheel) dispatch(due []*Timer) {
	now := w.now()
	for _, t := range due {
		t.Task.Due(now)
	}
}

// Set schedules t for the time at of the wheel's clock, and moves it when it is set already. A time that has passed is
// due at once, or with the next tick. After Close it does nothing.
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
	t.tick = tickFrom(at)
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

// Close ends the goroutine and waits for it, a running Due included: Due must not call it. Timers that have not fired
// stay set, for Stop and Len, but never fire. A second Close waits as well.
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

// tickOf returns the tick that contains a time.
func tickOf(at time.Duration) int64 { return int64(at / tick) }

// tickFrom returns the first tick that begins at a time or after it.
func tickFrom(at time.Duration) int64 {
	n := tickOf(at)
	if at > time.Duration(n)*tick {
		n++
	}
	return n
}

func (w *Wheel) run() {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	batch := make([]*Timer, 0, maxBatch)
	for {
		now := tickOf(w.now())
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return
		}
		batch, w.sleepUntil = w.stepLocked(now, batch[:0])
		until := w.sleepUntil
		w.mu.Unlock()

		if len(batch) > 0 {
			w.fire(batch)
			clear(batch)
		}
		if until > 0 {
			w.sleep(alarm, until)
		}
	}
}

// stepLocked does a bounded part of what there is to do. It returns what has to fire now, and the tick until
// which the goroutine may sleep: 0 when there may be more to do, never when only a wake-up can bring something.
//
// Slots are opened before what is due is taken, so that timers which Due sets in the past cannot hold up others.
func (w *Wheel) stepLocked(now int64, batch []*Timer) ([]*Timer, int64) {
	settled := w.advanceLocked(now)
	batch = w.takeLocked(batch)
	if !settled || len(batch) > 0 {
		return batch, 0
	}
	if w.count == 0 {
		return batch, never
	}
	return batch, min(w.slots.first(), w.slots.cur+maxSleep)
}

// advanceLocked brings the wheel to the tick now, and returns false when that needs another call.
func (w *Wheel) advanceLocked(now int64) (settled bool) {
	s := &w.slots
	budget := maxMoves
	for ; budget > 0; budget-- {
		start := s.first()
		if start > now {
			s.cur = max(s.cur, now)
			break
		}
		s.open(start)
	}
	for ; budget > 0 && !s.moving.empty(); budget-- {
		t := s.moving.next
		s.unlink(t)
		s.link(t)
	}
	return budget > 0
}

// takeLocked moves timers from the due list to batch until that is full.
func (w *Wheel) takeLocked(batch []*Timer) []*Timer {
	due := &w.slots.due
	for len(batch) < maxBatch && !due.empty() {
		t := due.next
		w.slots.unlink(t)
		w.count--
		batch = append(batch, t)
	}
	return batch
}

// sleep waits for a wake-up, at most until the given tick.
func (w *Wheel) sleep(alarm *time.Timer, until int64) {
	if until == never {
		alarm.Stop()
	} else {
		alarm.Reset(time.Duration(until)*tick - w.now())
	}
	select {
	case <-w.wake:
	case <-alarm.C:
	}
}
