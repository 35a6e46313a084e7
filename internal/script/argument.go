package script

import "time"

// Millis returns a time as scripts take it: in milliseconds, rounded up.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Flag returns a condition as scripts take it.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
