package locker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/option"
)

const (
	maxWait = 10 * 365 * 24 * time.Hour
)

// Options are the settings of one acquiring call. Public packages export functions that set them.
type Options struct {
	lease.Term
	Wait          *time.Duration          // limit of the wait; nil for the call's own default
	TakeOver      *string                 // owner id of an earlier hold, from whom the lock is taken; nil for none
	NoNest        bool                    // ErrHeld where the call would nest
	Owner         string                  // under which a waiter asks that Redis orders: an id that nobody had before; empty for a fresh one
	ReleaseOnDone bool                    // the hold is released when the context of the call is done
	Taken         func(Info, error) error // makes an ErrNotAcquired that says who holds the lock; nil for the plain one
	Asked         *atomic.Int32           // counts the questions of a multi-lock; nil for other calls, and if nobody observes it
	Several       *Several                // more than one lease at a time, of a Pool; nil for one
}

// Several asks for more than one lease at a time.
type Several struct {
	Count int
	Rest  []*lease.Hold // what was acquired besides the hold that the call returns
}

// asks counts a question.
func (o *Options) asks() {
	if o.Asked != nil {
		o.Asked.Add(1)
	}
}

// count is how many leases are asked for.
func (o *Options) count() int {
	if o.Several == nil {
		return 1
	}
	return o.Several.Count
}

// At returns the options of a call with the place in the program that makes it, if the client keeps track of places.
func (o *Options) At(c *core.Core) *Options {
	if !c.CallSites || o.Site != 0 {
		return o
	}
	with := *o
	with.Site = c.Events.Site()
	return &with
}

// none are the options of a call without any. Nobody writes to them.
//
//nolint:gochecknoglobals // a constant in all but name
var none = &Options{}

// Option is the part of an rlock.Option that only this module's options have.
type Option interface{ set(o *Options) }

// Set is an option by what it sets.
type Set func(*Options)

func (s Set) set(o *Options) { s(o) }

// Collect returns what the options of a call set.
func Collect[O Option](opts []O) (*Options, error) {
	if len(opts) == 0 {
		return none, nil
	}
	o := &Options{}
	return o, option.Apply(opts, o, func(opt O, o *Options) { opt.set(o) })
}

// Validate returns an error that wraps [errs.ErrInvalid] unless all options are good ones.
func (o *Options) Validate() error {
	if o.Lease != nil {
		if err := lease.CheckLease(*o.Lease); err != nil {
			return err
		}
	}
	if o.Renewed != nil {
		if err := lease.CheckLease(*o.Renewed); err != nil {
			return err
		}
		if o.Lease != nil {
			return fmt.Errorf("%w: a lease is either fixed or renewed", errs.ErrInvalid)
		}
	}
	if o.Wait != nil {
		if err := CheckWait(*o.Wait); err != nil {
			return err
		}
	}
	if o.MaxHold != nil && (*o.MaxHold < lease.Shortest || *o.MaxHold > maxWait) {
		return fmt.Errorf("%w: max hold %v is not between %v and ten years", errs.ErrInvalid, *o.MaxHold, lease.Shortest)
	}
	if o.TakeOver != nil {
		return core.CheckOwner(*o.TakeOver)
	}
	return nil
}

// waitLimit returns for how long the call may wait in all; 0 for no limit.
func (o *Options) waitLimit() time.Duration {
	if o.Wait == nil {
		return 0
	}
	return *o.Wait
}

// from returns the owner id from whom the lock is taken; empty for none.
func (o *Options) from() string {
	if o.TakeOver == nil {
		return ""
	}
	return *o.TakeOver
}

// CheckWait returns an error that wraps [errs.ErrInvalid] unless d can be the limit of a wait.
func CheckWait(d time.Duration) error {
	if d < 0 || d > maxWait {
		return fmt.Errorf("%w: wait %v is not between 0 and ten years", errs.ErrInvalid, d)
	}
	return nil
}
