package rratelimiter

import (
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	minPeriod = time.Millisecond
	maxPeriod = 366 * 24 * time.Hour
	maxTokens = 1_000_000_000
	maxWindow = 100_000
)

// Rate is how many tokens come back in a time. [Per] and [Window] return one.
type Rate struct {
	count  int
	period time.Duration
	window bool // they come back when they have left it
}

// Per returns the rate of n tokens in each period, which come back one by one. It is an average, and not the most in any
// period: Per(20, 2*time.Second) lets 40 pass in the first 2 s, the 20 that are there and the 20 that come back meanwhile.
// With WithBurst(1) it is 21, one each 100 ms. [Window] counts the most.
//
// A limiter keeps what was used as the time that it takes to come back, and not as a number. If the rate changes, that
// time stays: who has used up 5 an hour, and then has 10 an hour, is refused for 6 minutes, as one who has used up the 10.
//
// n is from 1 to 1,000,000,000, the period from 1 ms to 366 days, in whole microseconds.
func Per(n int, period time.Duration) Rate { return Rate{count: n, period: period} }

// Tokens returns how many tokens of [Per] come back in which time. A rate that [New] refuses, and that of [Window], are
// redlatch.ErrInvalid.
func (r Rate) Tokens() (n int, period time.Duration, err error) {
	if r.window {
		return 0, 0, fmt.Errorf("%w: the rate is that of a window, whose tokens do not come back one by one", errs.ErrInvalid)
	}
	return r.count, r.period, r.validate(options{burst: r.count})
}

// Window returns a rate of at most n tokens in any time of length d, however they are spread: each is back d after it was
// taken, and all n may be taken at once. It is what others mean by "1000 requests an hour" in their terms of use.
//
// Redis keeps each take that is not back, in about 30 bytes: 30 kB of a key that has used up 1000, while [Per] needs 100
// bytes. If n changes, what was used stays used as a number. If d grows, takes that the shorter window has forgotten are
// not counted. A limiter that changes from Per to Window, or back, begins with all tokens.
//
// n is from 1 to 100,000, d from 1 ms to 366 days, in whole microseconds. There is no [WithBurst] beside it.
func Window(n int, d time.Duration) Rate { return Rate{count: n, period: d, window: true} }

// Option configures a limiter.
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

type options struct {
	burst  int
	bursts bool // burst was set
}

// WithBurst sets the capacity: how many tokens may be taken at once when none was taken for long, from 1 to 1,000,000,000.
// All of them have to come back within 366 days: Per(1, 24*time.Hour) with a burst of 367 is refused, as redlatch.ErrInvalid.
// Without it, it is the number of tokens of the rate. It is for [Per].
func WithBurst(n int) Option { return setting(func(o *options) { o.burst, o.bursts = n, true }) }

func (r Rate) validate(o options) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errs.ErrInvalid}, args...)...)
	}
	most := maxTokens
	if r.window {
		most = maxWindow
	}
	switch {
	case r.count < 1 || r.count > most:
		return invalid("a rate of %d tokens is not between 1 and %d", r.count, most)
	case r.period < minPeriod || r.period > maxPeriod:
		return invalid("the period %v is not between %v and %v", r.period, minPeriod, maxPeriod)
	case r.period%time.Microsecond != 0:
		return invalid("the period %v is not in whole microseconds", r.period)
	case r.window && o.bursts:
		return invalid("a burst is for Per, not for Window")
	case o.burst < 1 || o.burst > maxTokens:
		return invalid("a burst of %d tokens is not between 1 and %d", o.burst, maxTokens)
	case int64(o.burst) > math.MaxInt64/r.period.Microseconds() || r.span(o.burst).micros > maxPeriod.Microseconds():
		return invalid("a burst of %d tokens takes more than %v to come back at %d in %v", o.burst, maxPeriod, r.count, r.period)
	}
	return nil
}

// span returns how long n tokens need to come back.
func (r Rate) span(n int) span {
	all := int64(n) * r.period.Microseconds()
	return span{all / int64(r.count), all % int64(r.count)}
}
