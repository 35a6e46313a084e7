package rsemaphore

import (
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
)

// SemaphoreOption is a setting of a [Semaphore], for redlatch.GetSemaphore.
type SemaphoreOption interface{ setSemaphore(o *options) }

// PermitSemaphoreOption is a setting of a [PermitSemaphore], for redlatch.GetPermitSemaphore.
type PermitSemaphoreOption interface{ setPermitSemaphore(o *options) }

// AcquireOption is a setting of one call, for [Semaphore.TryAcquire].
type AcquireOption interface{ setAcquire(o *options) }

// PermitOption is a setting of one call, for [PermitSemaphore.Acquire], [PermitSemaphore.TryAcquire] and
// [PermitSemaphore.AcquireN].
type PermitOption interface{ setPermit(o *options) }

// MaxOption is a setting of either kind of semaphore: a [SemaphoreOption] and a [PermitSemaphoreOption].
type MaxOption interface {
	SemaphoreOption
	PermitSemaphoreOption
}

// WaitOption is a setting of an acquiring call of either kind of semaphore: an [AcquireOption] and a [PermitOption].
type WaitOption interface {
	AcquireOption
	PermitOption
}

// LeaseOption is a setting of a [PermitSemaphore] that one call may override: a [PermitSemaphoreOption] and a
// [PermitOption].
type LeaseOption interface {
	PermitSemaphoreOption
	PermitOption
}

type (
	maxOption   func(*options)
	waitOption  func(*options)
	leaseOption func(*options)
)

func (set maxOption) setSemaphore(o *options)         { set(o) }
func (set maxOption) setPermitSemaphore(o *options)   { set(o) }
func (set waitOption) setAcquire(o *options)          { set(o) }
func (set waitOption) setPermit(o *options)           { set(o) }
func (set leaseOption) setPermitSemaphore(o *options) { set(o) }
func (set leaseOption) setPermit(o *options)          { set(o) }

// WithWait limits the wait of an acquiring call to d, from 0 to ten years. With 0 it asks once. Without WithWait,
// Acquire and AcquireN wait without limit, and TryAcquire does not wait.
func WithWait(d time.Duration) WaitOption { return waitOption(func(o *options) { o.wait = &d }) }

// WithFixedLease fixes the lease of a permit of a [PermitSemaphore] at d, 10 ms to 24 h. The permit is not renewed, and is
// lost when d has passed. Given to GetPermitSemaphore it applies to all permits acquired through that object. Without
// WithFixedLease the lease is the client's, 30 s by default, and is renewed until Release.
func WithFixedLease(d time.Duration) LeaseOption {
	return leaseOption(func(o *options) { o.lease = &d })
}

// WithMax sets the maximum number of permits, 1 to 2³¹-1. Without WithMax there is no maximum.
//
// A Release of a [Semaphore] that would make more than n permits available changes nothing and returns
// [ErrOverRelease]; an acquiring call for more than n returns redlatch.ErrInvalid. TrySetPermits and AddPermits ignore
// the maximum. It applies to the object that it is given for, not to other clients.
//
// For a [PermitSemaphore] it limits each number passed to AcquireN, TrySetPermits, SetPermits or AddPermits, which
// return redlatch.ErrInvalid above n. Several calls of AddPermits may add up to more.
func WithMax(n int) MaxOption { return maxOption(func(o *options) { o.max = &n }) }

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
	for _, opt := range opts {
		if any(opt) == nil {
			return o, errs.ErrNilOption
		}
		set(opt, &o)
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
