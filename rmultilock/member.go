package rmultilock

import (
	"fmt"
	"reflect"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/rlock"
)

// member is one of the locks.
type member struct {
	locker rlock.Locker
	name   *lease.Name // of a lock that can be asked without waiting; nil for others
}

// named is a lock of this module that is known by a name of package lease.
type named interface{ LeaseName() *lease.Name }

// membersOf judges the locks and returns them.
func membersOf(lockers []rlock.Locker) ([]member, error) {
	if len(lockers) == 0 {
		return nil, fmt.Errorf("%w: no locks are given", errs.ErrInvalid)
	}
	members := make([]member, 0, len(lockers))
	for i, locker := range lockers {
		if isNil(locker) {
			return nil, fmt.Errorf("%w: lock %d is nil", errs.ErrInvalid, i+1)
		}
		m := member{locker: locker}
		if plain, ok := locker.(*rlock.Lock); ok {
			m.name = plain.LeaseName()
		}
		if err := m.check(); err != nil {
			return nil, err
		}
		for _, other := range members {
			if m.same(other) {
				return nil, fmt.Errorf("%w: the lock %q is given twice", errs.ErrInvalid, locker.Name())
			}
		}
		members = append(members, m)
	}
	return members, nil
}

func isNil(locker rlock.Locker) bool {
	if locker == nil {
		return true
	}
	switch v := reflect.ValueOf(locker); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// check returns the error of a lock that can never be acquired.
func (m member) check() error {
	switch l := m.locker.(type) {
	case *Lock:
		return l.bad()
	case named:
		return l.LeaseName().Check()
	}
	return nil
}

// acquire returns the part that a call of the lock's own method acquires.
func (m member) acquire(call func(rlock.Locker) (*rlock.Hold, error)) (p part, err error) {
	err = guard(func() error {
		h, err := call(m.locker)
		switch {
		case err != nil:
			return err
		case h == nil || rlock.Unwrap(h) == nil:
			return fmt.Errorf("%w: the lock %q returned neither a hold nor an error", errs.ErrInvalid, m.locker.Name())
		}
		p.held = h
		if l, ok := rlock.Unwrap(h).(*lease.Hold); ok {
			p = part{held: l, lease: l}
		}
		return nil
	})
	return p, err
}

// guard returns what fn returns, and its panic as an error. A lock may be of a user's own making: while it is called others are
// held, which must not stay so, and it may run on a goroutine where nobody can recover.
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: a lock panicked: %v", errs.ErrInvalid, v)
		}
	}()
	return fn()
}

// same reports whether the two are one lock.
func (m member) same(other member) bool {
	switch l := m.locker.(type) {
	case named:
		o, ok := other.locker.(named)
		return ok && l.LeaseName().Same(o.LeaseName())
	case *Lock:
		o, ok := other.locker.(*Lock)
		return ok && l.same(o)
	}
	return reflect.ValueOf(m.locker).Comparable() && m.locker == other.locker
}
