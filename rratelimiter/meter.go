package rratelimiter

import (
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// meter is how tokens are counted in Redis.
type meter interface {
	// take takes n tokens, or reserves them if they are there within the longest wait; negative is for any.
	take(key string, n int, longest time.Duration) *script.Call
	// look is take that takes nothing.
	look(key string, n int) *script.Call
	read(c *script.Call) (taken, error)
	// giveBack gives back what a take of n tokens has reserved.
	giveBack(key string, n int, t taken) *script.Call
}

// taken is the answer to take and look.
type taken struct {
	ok        bool
	wait      time.Duration // until the tokens are there
	remaining int
	reset     time.Duration // until all tokens are back

	// What tells the reservation from others.
	back  span   // of a bucket: when all tokens are back, by the server's clock
	entry string // of a window: its place in the log
}

// bucket is a bucket of tokens that come back one by one.
type bucket struct {
	rate Rate
	all  span // how long all tokens need to come back
}

// span is an exact time: whole microseconds and a rest in parts of one, of which one has as many as a period has tokens.
type span struct{ micros, parts int64 }

// duration returns the time, rounded up to a microsecond.
func (s span) duration() time.Duration {
	return time.Duration(s.micros+min(s.parts, 1)) * time.Microsecond
}

// remaining returns how many tokens there are, if all need so long to come back.
func (b bucket) remaining(used span) int {
	micros := b.all.micros - used.micros
	if micros < 0 {
		return 0
	}
	free := micros*int64(b.rate.count) + b.all.parts - used.parts
	return int(max(free, 0) / b.rate.period.Microseconds())
}

// window is a log of what was taken.
type window struct {
	count  int
	length time.Duration
}
