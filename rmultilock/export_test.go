package rmultilock

import "github.com/redlatch/redlatch/rlock"

// Renews reports whether the timer runs by which a RedLock renews a hold.
func Renews(of *rlock.Hold) bool {
	h := rlock.Unwrap(of).(*hold) //nolint:forcetypeassert // a test that says otherwise is wrong
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keeper.timer != nil
}
