package rsemaphore

import (
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/option"
)

// Option is a setting of a semaphore, for [New] and [NewPermits], and for redlatch's GetSemaphore and GetPermitSemaphore.
type Option interface{ set(o *options) }

// PermitOption is a setting of one call of a [PermitSemaphore] that acquires: [WithFixedLease] or [WithWait].
type PermitOption interface{ setPermit(o *options) }

// AcquireOption is a setting of [Semaphore.TryAcquire], and a [PermitOption] too: [WithWait]. Acquire and Do of a [Semaphore] take none.
type AcquireOption interface {
	PermitOption
	setAcquire(o *options)
}

type (
	setting        func(*options)
	acquireSetting func(*options)
	permitSetting  func(*options)
)

func (s setting) set(o *options)               { s(o) }
func (s acquireSetting) setAcquire(o *options) { s(o) }
func (s acquireSetting) setPermit(o *options)  { s(o) }
func (s permitSetting) setPermit(o *options)   { s(o) }

// WithWait limits the wait of an acquiring call to d, from 0 to ten years. With 0 it asks once. Without WithWait,
// Acquire and AcquireN wait without limit, and TryAcquire does not wait.
func WithWait(d time.Duration) AcquireOption {
	return acquireSetting(func(o *options) { o.wait = &d })
}

// WithFixedLease fixes the lease of a permit of a [PermitSemaphore] at d, 10 ms to 24 h. The permit is not renewed, and is
// lost when d has passed. Without WithFixedLease the lease is the client's, 30 s by default, and is renewed until Release.
func WithFixedLease(d time.Duration) PermitOption {
	return permitSetting(func(o *options) { o.lease = &d })
}

// WithMax sets the maximum number of permits, 1 to 2³¹-1. Without WithMax there is no maximum.
//
// A Release of a [Semaphore] that would make more than n permits available changes nothing and returns
// [ErrOverRelease]; an acquiring call for more than n returns redlatch.ErrInvalid. TrySetPermits and AddPermits ignore
// the maximum. It applies to the object that it is given for, not to other clients.
//
// For a [PermitSemaphore] it limits each number passed to AcquireN, TrySetPermits, SetPermits or AddPermits, which
// return redlatch.ErrInvalid above n. Several calls of AddPermits may add up to more.
func WithMax(n int) Option { return setting(func(o *options) { o.max = &n }) }

// options are the settings of a semaphore or of one call; nil where not given.
type options struct {
	wait  *time.Duration
	lease *time.Duration
	max   *int
}

// collect returns what the options of one place set, or an error that wraps [errs.ErrInvalid].
func collect[T any](opts []T, set func(T, *options)) (options, error) {
	if len(opts) == 0 {
		return options{}, nil
	}
	var o options
	if err := option.Apply(opts, &o, set); err != nil {
		return o, err
	}
	return o, o.validate()
}

// validate checks all options before any I/O.
func (o *options) validate() error {
	if o.wait != nil {
		if err := locker.CheckWait(*o.wait); err != nil {
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
