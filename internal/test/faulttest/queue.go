package faulttest

import (
	"sync"
	"time"
)

// queue holds the parcels of one direction until they are due.
type queue struct {
	filled chan struct{} // holds a token while parcels may be there; never closed

	mu      sync.Mutex // guards parcels
	parcels []parcel
}

func newQueue() *queue { return &queue{filled: make(chan struct{}, 1)} }

func (q *queue) push(parcels []parcel) {
	q.mu.Lock()
	q.parcels = append(q.parcels, parcels...)
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// take waits until a parcel is due, and returns all that are; nil when done is closed first.
func (q *queue) take(done <-chan struct{}) []parcel {
	for {
		batch, wait := q.due()
		if len(batch) > 0 {
			return batch
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-done:
			return nil
		case <-timer:
		case <-q.filled:
		}
	}
}

// due removes what is due, or says how long that takes; no time if nothing is queued.
func (q *queue) due() (batch []parcel, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, now := 0, time.Now()
	for n < len(q.parcels) && !q.parcels[n].due.After(now) {
		n++
	}
	batch, q.parcels = q.parcels[:n:n], q.parcels[n:]
	if n == 0 && len(q.parcels) > 0 {
		wait = q.parcels[0].due.Sub(now)
	}
	return batch, wait
}
