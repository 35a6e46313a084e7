package waitqueue

import (
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
)

const (
	// Recheck is how often a head asks at least, jittered.
	Recheck        = time.Second
	recheckRate    = 500                   // re-checks a second of one client, above which they become rarer
	shortestTenure = time.Millisecond      // for which a client's waiters may follow one another
	longestRest    = 20 * time.Millisecond // after a tenure
)

// Pause returns how long to wait before the next re-check where so many waiters of the client re-check: d, jittered, or more.
func Pause(d time.Duration, waiting int64) time.Duration {
	spread := max(1, float64(waiting)/recheckRate)
	return backoff.Jitter(time.Duration(float64(d) * spread))
}

// Tenure is for how long a client's waiters may follow one another while other clients wait.
//
// Clients that contend take turns by time: one that had its tenure leaves the name to the others for about as long as they need for
// theirs. So a release is answered by few questions that are refused, however many clients wait, and no client is starved by another
// that happens to be nearer to Redis.
type Tenure struct {
	began     time.Duration // 0 outside of one
	restUntil time.Duration // until when it is the others' turn
}

func (t *Tenure) begin(now time.Duration) {
	if t.began == 0 {
		t.began = max(now, 1) // 0 is for none
	}
}

func (t *Tenure) end() { t.began = 0 }

// over reports, after a release, whether the client has to rest: its tenure of that length is over, and others were notified. Each of
// them is left a tenure, or the time between two releases if that is longer.
func (t *Tenure) over(now time.Duration, others int, length, gap time.Duration) bool {
	if now-t.began < length {
		return false
	}
	t.began = 0
	if others <= 0 {
		return false
	}
	t.restUntil = now + min(time.Duration(others)*max(length, gap), longestRest)
	return true
}

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
