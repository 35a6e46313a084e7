package grid

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Coder encodes and decodes what is of one type in an object.
type Coder[T any] struct {
	codec codec.Codec
	what  string
	limit int
}

// Values returns the coder of an object's values.
func Values[T any](o *Object) Coder[T] { return Coder[T]{o.opts.codec, "value", o.opts.maxValue} }

// Members returns the coder of a set's members, and checks their type.
func Members[T any](o *Object) Coder[T] {
	o.err = cmp.Or(o.err, CheckIdentity[T](o.opts.codec, "member"))
	return Values[T](o)
}

// Keys returns the coder of a map's keys, and checks their type.
func Keys[K any](o *Object) Coder[K] {
	o.err = cmp.Or(o.err, CheckIdentity[K](o.opts.keys, "key"))
	return Coder[K]{o.opts.keys, "key", maxKey}
}

// Arg returns a value as an argument, which is an error if it cannot be encoded, or is too long.
func (c Coder[T]) Arg(v T) any {
	data, err := codec.Marshal(c.codec, v)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	case len(data) > c.limit:
		return fmt.Errorf("%w: the encoded %s has %d bytes, more than %d", errs.ErrInvalid, c.what, len(data), c.limit)
	}
	return data
}

// Args returns values as arguments.
func (c Coder[T]) Args(values []T) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = c.Arg(v)
	}
	return args
}

// Next reads the next value of a reply.
func (c Coder[T]) Next(row *script.Row) (v T, err error) {
	text := row.Text()
	if row.Failed() {
		return v, row.Err()
	}
	return c.Decode(text)
}

// Decode decodes a value.
func (c Coder[T]) Decode(text string) (T, error) { return c.DecodeBytes([]byte(text)) }

// DecodeBytes is Decode, and does not keep the bytes.
func (c Coder[T]) DecodeBytes(data []byte) (v T, err error) {
	if err := codec.Unmarshal(c.codec, data, &v); err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// Value reads a reply that is one value, or nothing.
func (c Coder[T]) Value(o *Object, verb string, row *script.Row) (v T, ok bool, err error) {
	if !row.More() {
		return v, false, o.Wrap(verb, row.Err())
	}
	text, ok := row.Maybe()
	if err := row.Err(); err != nil || !ok {
		return v, false, o.Wrap(verb, err)
	}
	v, err = c.Decode(text)
	return v, true, o.Wrap(verb, err)
}

// All reads a reply that is a list of values.
func (c Coder[T]) All(o *Object, verb string, row *script.Row) ([]T, error) {
	var all []T
	for row.More() {
		v, err := c.Next(row)
		if err != nil {
			return nil, o.Wrap(verb, err)
		}
		all = append(all, v)
	}
	return all, o.Wrap(verb, row.Err())
}

// Scanned is about how many elements a step of an iteration reads.
const Scanned = 100

const (
	maxElements = 1000
	maxBytes    = 1 << 20
)

// parts returns arguments in parts of 1,000 elements, or of about 1 MiB. An element is of width arguments.
func parts(args []any, width int) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		from, size := 0, 0
		for i := 0; i < len(args); i += width {
			next := 0
			for _, arg := range args[i : i+width] {
				data, _ := arg.([]byte)
				next += len(data)
			}
			if i > from && (i-from == maxElements*width || size+next > maxBytes) {
				if !yield(args[from:i]) {
					return
				}
				from, size = i, 0
			}
			size += next
		}
		if from < len(args) {
			yield(args[from:])
		}
	}
}

// ChangeAll is Change for many elements, of width arguments each, in as many calls as it takes. It returns the sum of the
// replies, after an error that of the calls before.
func (o *Object) ChangeAll(ctx context.Context, verb string, s *script.Script, width int, args []any) (n int, err error) {
	return o.InParts(ctx, verb, width, args, func(part []any) *script.Row { return o.Change(ctx, s, part...) })
}

// InParts is ChangeAll with calls that change sends.
func (o *Object) InParts(ctx context.Context, verb string, width int, args []any, change func(part []any) *script.Row) (n int, err error) {
	if err := o.ready(ctx, args); err != nil {
		return 0, o.Wrap(verb, err)
	}
	for part := range parts(args, width) {
		more, err := o.Int(verb, change(part))
		if err != nil {
			return n, err
		}
		n += more
	}
	return n, nil
}

// ReadAll is Read for many elements, in as many calls as it takes. It returns their replies as one.
func (o *Object) ReadAll(ctx context.Context, s *script.Script, args []any) *script.Row {
	row := script.NoRow(o.ready(ctx, args))
	for part := range parts(args, 1) {
		if row.Failed() {
			break
		}
		row.Append(o.Read(ctx, s, part...))
	}
	return row
}

// ready returns what is wrong before the first of several calls.
func (o *Object) ready(ctx context.Context, args []any) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	return o.check(args)
}

// Scan iterates over a collection by hscan, sscan or zscan on the master, about 100 elements a step. read reads one from a
// reply.
func Scan[E any](ctx context.Context, o *Object, command string, read func(*script.Row) (E, error)) iter.Seq2[E, error] {
	return Steps(o, func(cursor string) *script.Row { return o.Read(ctx, scanScript, command, cursor, Scanned) }, read)
}

// Steps iterates over a collection as Scan does, by a script of the object's own, which gets a cursor.
func Steps[E any](o *Object, step func(cursor string) *script.Row, read func(*script.Row) (E, error)) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		for cursor := "0"; ; {
			row := step(cursor)
			cursor = row.Text()
			for row.More() {
				e, err := read(row)
				if err != nil {
					yield(none, o.Wrap("all", err))
					return
				}
				if !yield(e, nil) {
					return
				}
			}
			if err := row.Err(); err != nil {
				yield(none, o.Wrap("all", err))
				return
			}
			if cursor == "0" {
				return
			}
		}
	}
}

const (
	updateTries = 20
	updatePause = 2 * time.Millisecond // after the first try that failed, and so much more after each further one
)

// Update reads a value, calls fn, and writes what that returns if the value is still as it was read; again if it is not. read
// returns it from the master, and write writes it, if the mode is absent only where nothing is, if it is equal only over old.
func (c Coder[T]) Update(ctx context.Context, o *Object, read func() *script.Row, write func(value any, mode string, old any) *script.Row,
	fn func(v T, ok bool) (T, error),
) (v T, err error) {
	if fn == nil {
		return v, o.Wrap("update", fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	for try := range updateTries {
		changed, next, err := c.try(o, read, write, fn)
		if err != nil || changed {
			return next, err
		}
		if err := core.Sleep(ctx, core.Jitter(time.Duration(try+1)*updatePause)); err != nil {
			return v, o.Wrap("update", err)
		}
	}
	return v, o.Wrap("update", errs.ErrConflict)
}

func (c Coder[T]) try(o *Object, read func() *script.Row, write func(value any, mode string, old any) *script.Row,
	fn func(v T, ok bool) (T, error),
) (changed bool, next T, err error) {
	var none T
	row, mode, old := read(), "absent", ""
	var before T
	there := row.More()
	if there {
		mode, old = "equal", row.Text()
		before, err = c.Decode(old)
	}
	if err = cmp.Or(row.Err(), err); err != nil {
		return false, none, o.Wrap("update", err)
	}
	next, err = fn(before, there)
	if err != nil {
		return false, none, err
	}
	changed, err = o.OK("update", write(c.Arg(next), mode, old))
	if err != nil || !changed {
		return false, none, err
	}
	return true, next, nil
}

// Finite returns a float as an argument. It is an error if it is NaN or infinite.
func Finite(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("%w: %v is not finite", errs.ErrInvalid, f)
	}
	return f
}
