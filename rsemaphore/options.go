package rsemaphore

import (
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// Option is a setting of a semaphore or of one acquiring call. One that does not apply where it is given is
// redlatch.ErrInvalid.
type Option func(*options)

// WithWait bounds the wait of an acquiring call: one that has acquired nothing after d gives up. Zero asks once. From 0 to ten years.
// Without WithWait, Acquire waits without limit, and TryAcquire does not wait.
func WithWait(d time.Duration) Option { return func(o *options) { o.wait = &d } }

// WithLease fixes the lease of a permit of a [PermitSemaphore]: the watchdog does not renew it, and it is lost once d has passed. From
// 10 ms to 24 h. Without WithLease the lease is the client's, 30 s by default, and is renewed until the permit is released.
// Given to GetPermitSemaphore it is the lease of all permits that are acquired through that object.
func WithLease(d time.Duration) Option { return func(o *options) { o.lease = &d } }

// WithMax says how many permits a [Semaphore] has at most: a Release that would make more available changes nothing and returns
// [ErrOverRelease], and a request for more is redlatch.ErrInvalid. TrySetPermits and AddPermits do not look at it. It binds the object
// that it is given for, and no other client. From 1 to 2³¹-1. Without WithMax there is no limit.
// Given to GetPermitSemaphore it only makes each single number above n that is asked for, set or added redlatch.ErrInvalid: several
// AddPermits may come to more.
func WithMax(n int) Option { return func(o *options) { o.max = &n } }

// options are the settings of a semaphore or of one call; nil for those that were not given.
type options struct {
	wait  *time.Duration
	lease *time.Duration
	max   *int
}

// uses says which options apply.
type uses uint8

const (
	usesWait uses = 1 << iota
	usesLease
	usesMax
)

// collect returns what the options set, or an error that wraps [errs.ErrInvalid].
func collect(opts []Option, applies uses) (options, error) {
	var o options
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: an option is nil", errs.ErrInvalid)
		}
		opt(&o)
	}
	return o, o.validate(applies)
}

// validate judges all options before any I/O.
func (o *options) validate(applies uses) error {
	switch {
	case o.wait != nil && applies&usesWait == 0:
		return fmt.Errorf("%w: WithWait does not apply here", errs.ErrInvalid)
	case o.lease != nil && applies&usesLease == 0:
		return fmt.Errorf("%w: WithLease does not apply here", errs.ErrInvalid)
	case o.max != nil && applies&usesMax == 0:
		return fmt.Errorf("%w: WithMax does not apply here", errs.ErrInvalid)
	}
	if o.wait != nil {
		if err := lease.CheckWait(*o.wait); err != nil {
			return err
		}
	}
	if o.lease != nil {
		if err := lease.CheckLease(*o.lease); err != nil {
			return err
		}
	}
	if o.max != nil {
		return checkCount("max", *o.max)
	}
	return nil
}

// checkCount returns an error that wraps [errs.ErrInvalid] unless n is a number of permits that Java can read too.
func checkCount(what string, n int) error {
	if n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("%w: %s %d is not between 1 and %d", errs.ErrInvalid, what, n, math.MaxInt32)
	}
	return nil
}
