package waitqueue

import (
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
)

const (
	// Recheck is how often a head asks at least, jittered.
	Recheck = time.Second
	// ShortestTenure is for how long a client's waiters may follow one another at least.
	ShortestTenure = time.Millisecond

	recheckRate = 500                   // re-checks a second of one client, above which they become rarer
	longestRest = 20 * time.Millisecond // after a tenure
)

// Pause returns how long to wait before the next re-check where so many waiters of the client re-check: d, jittered, or more.
func Pause(d time.Duration, waiting int64) time.Duration {
	spread := max(1, float64(waiting)/recheckRate)
	return backoff.Jitter(time.Duration(float64(d) * spread))
}

// Tenure is for how long a client's waiters may follow one another while other clients wait. The zero value is one that has not begun.
//
// Clients that contend take turns by time: one that had its tenure leaves the name to the others for about as long as they need for
// theirs. So a release is answered by few questions that are refused, however many clients wait, and no client is starved by another
// that happens to be nearer to Redis.
type Tenure struct {
	began     time.Duration // 0 outside of one
	restUntil time.Duration // until when it is the others' turn
}

// Begin notes a grant: the tenure begins, unless one is running.
func (t *Tenure) Begin(now time.Duration) {
	if t.began == 0 {
		t.began = max(now, 1) // 0 is for none
	}
}

// End ends the tenure.
func (t *Tenure) End() { t.began = 0 }

// Running reports whether the tenure has begun.
func (t *Tenure) Running() bool { return t.began != 0 }

// Over reports whether a tenure of that length is over. One that has not begun is.
func (t *Tenure) Over(now, length time.Duration) bool { return now-t.began >= length }

// Yield ends the tenure after a release, and reports whether the client leaves the name to others: some were notified. Each of them is
// left a tenure, or the time between two releases if that is longer.
func (t *Tenure) Yield(now time.Duration, others int, length, gap time.Duration) bool {
	t.End()
	if others <= 0 {
		return false
	}
	t.restUntil = now + min(time.Duration(others)*max(length, gap), longestRest)
	return true
}

// RestsUntil returns until when it is the others' turn.
func (t *Tenure) RestsUntil() time.Duration { return t.restUntil }

// rate is how often a name is released.
type rate struct {
	last time.Duration
	gap  time.Duration // between two releases, smoothed
}

func (r *rate) count(now time.Duration) {
	if r.last != 0 {
		r.gap += (now - r.last - r.gap) / 8
	}
	r.last = now
}
