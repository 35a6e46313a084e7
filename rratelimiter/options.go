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
)

// Rate is how many tokens come back in a time. [Per] returns one.
type Rate struct {
	count  int
	period time.Duration
}

// Per returns the rate of n tokens in each period: n from 1 to 1,000,000,000, the period from 1 ms to 366 days, in whole
// microseconds.
func Per(n int, period time.Duration) Rate { return Rate{n, period} }

// Option configures a limiter.
type Option func(*options)

type options struct {
	burst int
}

// WithBurst sets the capacity: how many tokens may be taken at once when none was taken for long, from 1 to 1,000,000,000.
// Without it, it is the number of tokens of the rate.
func WithBurst(n int) Option { return func(o *options) { o.burst = n } }

func (r Rate) validate(o options) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errs.ErrInvalid}, args...)...)
	}
	switch {
	case r.count < 1 || r.count > maxTokens:
		return invalid("a rate of %d tokens is not between 1 and %d", r.count, maxTokens)
	case r.period < minPeriod || r.period > maxPeriod:
		return invalid("the period %v is not between %v and %v", r.period, minPeriod, maxPeriod)
	case r.period%time.Microsecond != 0:
		return invalid("the period %v is not in whole microseconds", r.period)
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
