package rsemaphore

import (
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// Option is a setting of a semaphore or of one acquiring call. A function returns redlatch.ErrInvalid for an option
// that does not apply to it.
type Option func(*options)

// WithWait limits the wait of an acquiring call to d, from 0 to ten years. With 0 it asks once. Without WithWait,
// Acquire and AcquireN wait without limit, and TryAcquire does not wait.
func WithWait(d time.Duration) Option { return func(o *options) { o.wait = &d } }

// WithLease fixes the lease of a permit of a [PermitSemaphore] at d, 10 ms to 24 h. The permit is not renewed, and is
// lost when d has passed. Given to GetPermitSemaphore it applies to all permits acquired through that object. Without
// WithLease the lease is the client's, 30 s by default, and is renewed until Release.
func WithLease(d time.Duration) Option { return func(o *options) { o.lease = &d } }

// WithMax sets the maximum number of permits, 1 to 2³¹-1. Without WithMax there is no maximum.
//
// A Release of a [Semaphore] that would make more than n permits available changes nothing and returns
// [ErrOverRelease]; an acquiring call for more than n returns redlatch.ErrInvalid. TrySetPermits and AddPermits ignore
// the maximum. It applies to the object that it is given for, not to other clients.
//
// For a [PermitSemaphore] it limits each number passed to AcquireN, TrySetPermits, SetPermits or AddPermits, which
// return redlatch.ErrInvalid above n. Several calls of AddPermits may add up to more.
func WithMax(n int) Option { return func(o *options) { o.max = &n } }

// options are the settings of a semaphore or of one call; nil where not given.
type options struct {
	wait  *time.Duration
	lease *time.Duration
	max   *int
}

// uses is the set of options that apply to a function.
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

// validate checks all options before any I/O.
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

// checkCount returns an error that wraps [errs.ErrInvalid] unless n is a number of permits that Java can read.
func checkCount(what string, n int) error {
	if n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("%w: %s %d is not between 1 and %d", errs.ErrInvalid, what, n, math.MaxInt32)
	}
	return nil
}
