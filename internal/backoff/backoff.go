// Package backoff says how long to wait between one try and the next.
package backoff

import (
	"math/rand/v2"
	"time"
)

// maxDoublings keeps what is doubled from overflowing: a second, doubled so often, is twelve days.
const maxDoublings = 20

// Pause returns how long to wait after a number of failures: first, doubled with each of them up to most, jittered.
func Pause(failures int, first, most time.Duration) time.Duration {
	return Jitter(Doubled(failures, first, most))
}

// Doubled returns first, doubled n times, or most if that is less.
func Doubled(n int, first, most time.Duration) time.Duration {
	return min(first<<min(n, maxDoublings), most)
}

// Jitter returns a random duration between three quarters of d and five quarters.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }
