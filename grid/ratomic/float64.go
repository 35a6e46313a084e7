package ratomic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/grid"
)

// Float64 is a number with a fraction. NaN and the infinities are redlatch.ErrInvalid. Numbers are compared as float64 values; the
// server adds with more digits, so that 0.1 and 0.2 are 0.3. It is safe for concurrent use.
type Float64 struct {
	o *grid.Object
	v grid.Coder[float64]
}

// NewFloat64 returns the number with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; a bad name
// is the error of every method.
func NewFloat64(client core.Client, name string) *Float64 {
	o := grid.New(client, "ratomic", grid.String, name, []grid.Option(nil))
	return &Float64{o, grid.Values[float64](o)}
}

// Load returns the number.
func (n *Float64) Load(ctx context.Context) (float64, error) {
	v, _, err := n.v.Value(n.o, "load", n.o.Read(ctx, get))
	return v, err
}

// Store sets the number.
func (n *Float64) Store(ctx context.Context, v float64) error {
	row := n.o.Change(ctx, set, n.v.Arg(v), "keepttl", "get")
	row.Maybe()
	return n.o.Wrap("store", row.Err())
}

// Swap sets the number, and returns the old one.
func (n *Float64) Swap(ctx context.Context, v float64) (old float64, err error) {
	old, _, err = n.v.Value(n.o, "swap", n.o.Change(ctx, set, n.v.Arg(v), "keepttl", "get"))
	return old, err
}

// large is the greatest delta that is added without a look at the sum: it is far below the last digit that Redis has of a number near
// the greatest float64.
const large = 1e250

var errInfinite = errors.New("the sum is infinite")

// Add adds delta, and returns the sum. If that is infinite nothing changes, and the error says so. What is there and is not a number is
// codec.ErrDecode.
func (n *Float64) Add(ctx context.Context, delta float64) (float64, error) {
	if math.Abs(delta) > large {
		sum, ok, err := n.change(ctx, "add", "incrbyfloat", delta, -math.MaxFloat64, math.MaxFloat64)
		if err == nil && !ok {
			return 0, n.o.Wrap("add", errInfinite)
		}
		return sum, err
	}
	sum, _, err := n.v.Value(n.o, "add", n.o.Change(ctx, incrbyfloat, n.v.Arg(delta)))
	return sum, err
}

// CompareAndSwap sets the number if it is old, and reports whether it did.
func (n *Float64) CompareAndSwap(ctx context.Context, old, v float64) (ok bool, err error) {
	_, ok, err = n.change(ctx, "compare and swap", "set", v, old, old)
	return ok, err
}

// StoreIfGreater sets the number if v is greater than it, and reports whether it did.
func (n *Float64) StoreIfGreater(ctx context.Context, v float64) (ok bool, err error) {
	least, most := -math.MaxFloat64, math.Nextafter(v, math.Inf(-1))
	if v == -math.MaxFloat64 {
		least, most = 1, 0
	}
	_, ok, err = n.change(ctx, "store if greater", "set", v, least, most)
	return ok, err
}

// StoreIfLess sets the number if v is less than it, and reports whether it did.
func (n *Float64) StoreIfLess(ctx context.Context, v float64) (ok bool, err error) {
	least, most := math.Nextafter(v, math.Inf(1)), math.MaxFloat64
	if v == math.MaxFloat64 {
		least, most = 1, 0
	}
	_, ok, err = n.change(ctx, "store if less", "set", v, least, most)
	return ok, err
}

// AddWithin adds delta if the sum is not below least nor above most, which may be infinite, and reports whether it did. It
// returns the number that is there then.
func (n *Float64) AddWithin(ctx context.Context, delta, least, most float64) (v float64, ok bool, err error) {
	if math.IsNaN(least) || math.IsNaN(most) {
		return 0, false, n.o.Wrap("add within", fmt.Errorf("%w: a bound is NaN", errs.ErrInvalid))
	}
	if least > most {
		return 0, false, n.o.Wrap("add within", fmt.Errorf("%w: %v is above %v", errs.ErrInvalid, least, most))
	}
	return n.change(ctx, "add within", "incrbyfloat", delta, max(least, -math.MaxFloat64), min(most, math.MaxFloat64))
}

// bound returns a number as a script reads it: the Lua of embedded servers reads long ones only with a point
// and an exponent.
func (n *Float64) bound(v float64) any {
	if err, bad := n.v.Arg(v).(error); bad {
		return err
	}
	return strconv.FormatFloat(v, 'e', 17, 64)
}

func (n *Float64) change(ctx context.Context, verb, command string, operand, least, most float64) (v float64, ok bool, err error) {
	return changed(n.o, n.v, verb, n.o.Change(ctx, float64Script, command, n.v.Arg(operand), n.bound(least), n.bound(most)))
}

// Name returns the number's name as it was given to NewFloat64.
func (n *Float64) Name() string { return n.o.Name() }

// Key returns the Redis key of the number.
func (n *Float64) Key() string { return n.o.Key() }

// Delete deletes the number, which is 0 then, and reports whether it was there.
func (n *Float64) Delete(ctx context.Context) (ok bool, err error) { return n.o.Delete(ctx) }

// Expire sets the time to live of the number, from 1 ms to 100 years, and reports whether it is there.
func (n *Float64) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	return n.o.Expire(ctx, d)
}

// Persist removes the time to live of the number, and reports whether it had one.
func (n *Float64) Persist(ctx context.Context) (ok bool, err error) { return n.o.Persist(ctx) }

// TTL returns the time to live of the number: 0 if it is not there, negative if it has none.
func (n *Float64) TTL(ctx context.Context) (time.Duration, error) { return n.o.TTL(ctx) }

// Info returns what Redis knows of the number.
func (n *Float64) Info(ctx context.Context) (Info, error) {
	info, err := n.o.Info(ctx)
	return Info(info), err
}
