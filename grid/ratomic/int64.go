package ratomic

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

// Int64 is a whole number. It is safe for concurrent use.
type Int64 struct {
	o *grid.Object
	v grid.Coder[int64]
}

// NewInt64 returns the whole number with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; a bad
// name is the error of every method.
func NewInt64(client core.Client, name string) *Int64 {
	o := grid.New(client, "ratomic", grid.String, name, []grid.Option(nil))
	return &Int64{o, grid.Values[int64](o)}
}

// Load returns the number.
func (n *Int64) Load(ctx context.Context) (int64, error) {
	v, _, err := n.v.Value(n.o, "load", n.o.Read(ctx, get))
	return v, err
}

// Store sets the number.
func (n *Int64) Store(ctx context.Context, v int64) error {
	row := n.o.Change(ctx, set, v, "keepttl", "get")
	row.Maybe()
	return n.o.Wrap("store", row.Err())
}

// Swap sets the number, and returns the old one.
func (n *Int64) Swap(ctx context.Context, v int64) (old int64, err error) {
	old, _, err = n.v.Value(n.o, "swap", n.o.Change(ctx, set, v, "keepttl", "get"))
	return old, err
}

// Add adds delta, and returns the sum. If that has more than 64 bits nothing changes, and the error is that of Redis, which says so.
// What is there and is not a whole number of 64 bits is codec.ErrDecode.
func (n *Int64) Add(ctx context.Context, delta int64) (int64, error) {
	row := n.o.Change(ctx, incrby, delta)
	sum := row.Int()
	return sum, n.o.Wrap("add", row.Err())
}

// CompareAndSwap sets the number if it is old, and reports whether it did.
func (n *Int64) CompareAndSwap(ctx context.Context, old, v int64) (ok bool, err error) {
	_, ok, err = n.change(ctx, "compare and swap", "set", v, old, old)
	return ok, err
}

// StoreIfGreater sets the number if v is greater than it, and reports whether it did.
func (n *Int64) StoreIfGreater(ctx context.Context, v int64) (ok bool, err error) {
	least, most := int64(math.MinInt64), v-1
	if v == math.MinInt64 {
		least, most = 1, 0
	}
	_, ok, err = n.change(ctx, "store if greater", "set", v, least, most)
	return ok, err
}

// StoreIfLess sets the number if v is less than it, and reports whether it did.
func (n *Int64) StoreIfLess(ctx context.Context, v int64) (ok bool, err error) {
	least, most := v+1, int64(math.MaxInt64)
	if v == math.MaxInt64 {
		least, most = 1, 0
	}
	_, ok, err = n.change(ctx, "store if less", "set", v, least, most)
	return ok, err
}

// AddWithin adds delta if the sum is not below least nor above most, and reports whether it did. It returns the number that is
// there then.
func (n *Int64) AddWithin(ctx context.Context, delta, least, most int64) (v int64, ok bool, err error) {
	if least > most {
		return 0, false, n.o.Wrap("add within", fmt.Errorf("%w: %d is above %d", errs.ErrInvalid, least, most))
	}
	from, fromIs := minus(least, delta)
	to, toIs := minus(most, delta)
	switch { // what no number can be
	case !fromIs && delta < 0, !toIs && delta > 0:
		from, to = 1, 0
	case !fromIs:
		from = math.MinInt64
	case !toIs:
		to = math.MaxInt64
	}
	return n.change(ctx, "add within", "incrby", delta, from, to)
}

// minus returns the difference of two numbers, and whether it is one of 64 bits.
func minus(a, b int64) (int64, bool) {
	d := a - b
	return d, (d < a) == (b > 0)
}

func (n *Int64) change(ctx context.Context, verb, command string, operand, least, most int64) (v int64, ok bool, err error) {
	return changed(n.o, n.v, verb, n.o.Change(ctx, int64Script, command, operand, least, most))
}

// changed reads the reply of the scripts.
func changed[T any](o *grid.Object, coder grid.Coder[T], verb string, row *script.Row) (v T, ok bool, err error) {
	ok = row.Int() == 1
	v, _, err = coder.Value(o, verb, row)
	return v, ok, err
}

// Name returns the number's name as it was given to NewInt64.
func (n *Int64) Name() string { return n.o.Name() }

// Key returns the Redis key of the number.
func (n *Int64) Key() string { return n.o.Key() }

// Delete deletes the number, which is 0 then, and reports whether it was there.
func (n *Int64) Delete(ctx context.Context) (ok bool, err error) { return n.o.Delete(ctx) }

// Expire sets the time to live of the number, from 1 ms to 100 years, and reports whether it is there.
func (n *Int64) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	return n.o.Expire(ctx, d)
}

// Persist removes the time to live of the number, and reports whether it had one.
func (n *Int64) Persist(ctx context.Context) (ok bool, err error) { return n.o.Persist(ctx) }

// TTL returns the time to live of the number: 0 if it is not there, negative if it has none.
func (n *Int64) TTL(ctx context.Context) (time.Duration, error) { return n.o.TTL(ctx) }

// Info returns what Redis knows of the number.
func (n *Int64) Info(ctx context.Context) (Info, error) {
	info, err := n.o.Info(ctx)
	return Info(info), err
}

// Info is what the Info of a number returns.
type Info struct {
	// Name is that of the number.
	Name string
	// Len is 1 if the number is there, 0 if not.
	Len int
	// TTL is the time to live: 0 if the number is not there, negative if it has none.
	TTL time.Duration
	// Bytes is how much memory the server uses for the number, 0 if it does not say.
	Bytes int64
}
