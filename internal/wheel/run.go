package wheel

import "time"

const (
	tick     = time.Millisecond
	maxSleep = int64(time.Second / tick) // in ticks, while timers are set
	maxMoves = 1000                      // bounds the work under one hold of the mutex
	maxBatch = 512
)

func tickOf(at time.Duration) int64 { return int64(at / tick) }

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
// Slots are opened before what is due is taken, so that timers which fire sets in the past cannot hold up others.
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
