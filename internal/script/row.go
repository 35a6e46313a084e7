package script

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Row reads a reply value by value: that of a script, or of a command, whose arrays may have arrays in them. Redis has a number as
// an integer, a decimal text or a double, depending on where it was kept and on the version of the protocol. A reply of another
// shape is an error.
type Row struct {
	values []any
	err    error
}

// Row returns the reply of the call.
func (c *Call) Row() *Row {
	switch err := c.Err(); {
	case errors.Is(err, redis.Nil):
		return &Row{values: []any{nil}}
	case err != nil:
		return &Row{err: err}
	}
	if list, ok := c.Val().([]any); ok {
		return &Row{values: flat(list)}
	}
	return &Row{values: []any{c.Val()}}
}

// NoRow returns the reply of a call that has none.
func NoRow(err error) *Row { return &Row{err: err} }

// flat returns a list whose lists are replaced by what they hold.
func flat(list []any) []any {
	isList := func(v any) bool { _, ok := v.([]any); return ok }
	if !slices.ContainsFunc(list, isList) {
		return list
	}
	var all []any
	for _, v := range list {
		if inner, ok := v.([]any); ok {
			all = append(all, flat(inner)...)
		} else {
			all = append(all, v)
		}
	}
	return all
}

// Append adds what another reply holds, or its error.
func (r *Row) Append(other *Row) {
	r.values = append(r.values, other.values...)
	if r.err == nil {
		r.err = other.err
	}
}

// More reports whether there is another value to read.
func (r *Row) More() bool { return r.err == nil && len(r.values) > 0 }

// Failed reports whether something was wrong so far.
func (r *Row) Failed() bool { return r.err != nil }

// Err returns what was wrong with the reply; a row has to be read to its end.
func (r *Row) Err() error {
	if r.More() {
		return fmt.Errorf("a script answered with %d values too many", len(r.values))
	}
	return r.err
}

// Int reads a number.
func (r *Row) Int() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n
		}
		r.fail("%.100q, not a number", v)
	default:
		r.fail("a %T, not a number", v)
	}
	return 0
}

// Text reads a text.
func (r *Row) Text() string {
	switch v := r.next().(type) {
	case string:
		return v
	default:
		r.fail("a %T, not a text", v)
	}
	return ""
}

// Maybe reads a text, or a number as one, that may be missing.
func (r *Row) Maybe() (text string, ok bool) {
	switch v := r.next().(type) {
	case nil:
		return "", false
	case string:
		return v, true
	case int64:
		return strconv.FormatInt(v, 10), true
	default:
		r.fail("a %T, not a text", v)
		return "", false
	}
}

// MaybeFloat reads a number that may have a fraction, and may be missing.
func (r *Row) MaybeFloat() (f float64, ok bool) {
	if r.err == nil && len(r.values) > 0 && r.values[0] == nil {
		r.values = r.values[1:]
		return 0, false
	}
	f = r.Float()
	return f, r.err == nil
}

// Float reads a number that may have a fraction.
func (r *Row) Float() float64 {
	switch v := r.next().(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	case string:
		f, err := strconv.ParseFloat(v, 64)
		if err == nil {
			return f
		}
		r.fail("%.100q, not a number", v)
	default:
		r.fail("a %T, not a number", v)
	}
	return 0
}

func (r *Row) next() any {
	if r.err != nil {
		return nil
	}
	if len(r.values) == 0 {
		r.fail("too few values")
		return nil
	}
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

// fail keeps the first thing that is wrong.
func (r *Row) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("a script answered with "+format, args...)
	}
}
