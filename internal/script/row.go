package script

import (
	"fmt"
	"strconv"
)

// Row reads the reply of a script that answers an array, value by value. Redis has a number as an integer or as a decimal text,
// depending on where it was kept. A reply of another shape is an error.
type Row struct {
	values []any
	err    error
}

// Row returns the reply of a script that answers an array.
func (c *Call) Row() *Row {
	if err := c.Err(); err != nil {
		return &Row{err: err}
	}
	values, err := c.Slice()
	return &Row{values: values, err: err}
}

// More reports whether there is another value to read.
func (r *Row) More() bool { return r.err == nil && len(r.values) > 0 }

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
