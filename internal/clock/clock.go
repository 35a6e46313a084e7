// Package clock tells how much time has passed for a lease.
//
// A lease runs out in Redis whatever happens to this process. Go's monotonic clock stands still while a machine is
// suspended, the wall clock does not; so time that the wall clock gained on the monotonic one counts as elapsed.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// jump is how far the wall clock must run ahead between two readings to count: below it are the noise of reading two
// clocks one after the other and the steps of a well-kept NTP.
const jump = 50 * time.Millisecond

// Clock is a clock that never goes back. It is safe for concurrent use.
type Clock struct {
	start   time.Time
	gap     atomic.Int64 // wall minus monotonic time since start, as last accepted
	skipped atomic.Int64 // sum of the forward jumps of gap

	mu sync.Mutex    // serialises changes of gap and skipped
	of time.Duration // monotonic time since start of the reading by which gap was last changed; guarded by mu
}

// New returns a clock that shows 0 now.
func New() *Clock { return &Clock{start: time.Now()} }

// Now returns the time since the clock was made.
func (c *Clock) Now() time.Duration {
	now := time.Now()
	elapsed := now.Sub(c.start)
	return c.at(elapsed, time.Duration(now.UnixNano()-c.start.UnixNano()))
}

// at returns the clock's time when the monotonic and the wall clock have advanced this much.
func (c *Clock) at(elapsed, wall time.Duration) time.Duration {
	gap := wall - elapsed
	if d := gap - time.Duration(c.gap.Load()); d > jump || d < -jump {
		c.accept(elapsed, gap)
	}
	return elapsed + time.Duration(c.skipped.Load())
}

func (c *Clock) accept(elapsed, gap time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := gap - time.Duration(c.gap.Load())
	// A reading that was overtaken would undo the jump, and the next one count it again.
	if d <= jump && d >= -jump || elapsed < c.of {
		return
	}
	c.of = elapsed
	c.gap.Store(int64(gap))
	if d > 0 {
		c.skipped.Add(int64(d))
	}
}

// Time returns the wall and monotonic time at which the clock shows t, if it does not jump until then.
func (c *Clock) Time(t time.Duration) time.Time {
	return time.Now().Add(t - c.Now())
}
