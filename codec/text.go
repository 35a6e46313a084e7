package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

var (
	errType  = errors.New("the codec does not support the type")
	errUTF8  = errors.New("the text is not valid UTF-8")
	errNil   = errors.New("a nil pointer has no text")
	errFloat = errors.New("the number is not finite")
)

// Text encodes as people write: what is a text, a number, a truth value or bytes as it is, and everything else as JSON.
// redis-cli shows what is meant, Redis can increment the numbers, and Redisson reads it by StringCodec and
// TypedJsonJacksonCodec. Equal values have equal bytes, but for a zero with a sign in JSON, so keys of maps and members of sets can be
// found.
//
// The type decides, and not the value:
//
//   - A type whose values or pointers have MarshalText is its text ([encoding.TextMarshaler]), as are times and UUIDs.
//   - Strings are unchanged, and must be valid UTF-8; []byte is unchanged.
//   - Numbers are in decimal: floating-point numbers without an exponent, in as few digits as read back to the same one,
//     zero without a sign. NaN and the infinities are errors.
//   - Booleans are true and false.
//   - Anything else is as [JSON] writes it: structs, maps, slices, pointers, and interfaces, whose strings must be valid
//     UTF-8 too; a MarshalJSON must write the character U+FFFD itself and not \ufffd. [Marshal] sees that the static type is
//     an interface; Encode alone sees the value inside.
//
// Decode reads exponents too, which Java writes (1.0E10).
type Text struct{}

// Encode returns v as text, or as JSON.
func (Text) Encode(v any) ([]byte, error) {
	switch v := v.(type) { // what is used most, without reflection
	case string:
		return checked([]byte(v), nil)
	case int:
		return strconv.AppendInt(nil, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case []byte:
		return slices.Clone(v), nil
	}
	r := reflect.ValueOf(v)
	if !r.IsValid() {
		return asJSON(nil)
	}
	switch formOf(r.Type()) {
	case textForm:
		return marshalText(r)
	case bytesForm:
		return slices.Clone(r.Bytes()), nil
	case plainForm:
		return plain(r)
	}
	return asJSON(v)
}

// asJSON refuses strings that are not valid UTF-8, in which json.Marshal puts \ufffd for each byte that is wrong. It writes the
// character itself as it is.
func asJSON(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	for from := 0; ; {
		at := bytes.Index(data[from:], []byte(`\ufffd`))
		if at < 0 {
			return data, nil
		}
		at += from
		before := data[:at]
		if (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return nil, errUTF8
		}
		from = at + 1
	}
}

// Decode reads into the pointer v what Encode writes of the type that it points to.
func (Text) Decode(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("%w: %T is not a pointer, or is nil", errType, v)
	}
	to := p.Elem()
	switch formOf(to.Type()) {
	case textForm:
		return unmarshalText(data, p)
	case bytesForm:
		to.SetBytes(append(make([]byte, 0, len(data)), data...))
		return nil
	case plainForm:
		if !utf8.Valid(data) {
			return errUTF8
		}
		return setPlain(to, string(data))
	}
	return JSON{}.Decode(data, v)
}

// form is how a type is written.
type form int

const (
	jsonForm  form = iota
	textForm       // by its MarshalText
	bytesForm      // as it is
	plainForm      // a string, number or boolean
)

//nolint:gochecknoglobals // what is computed of a type stays as it is
var (
	forms       sync.Map // reflect.Type -> form
	marshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	unmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func formOf(t reflect.Type) form {
	if known, ok := forms.Load(t); ok {
		return known.(form)
	}
	f := jsonForm
	switch kind := t.Kind(); {
	case kind == reflect.Interface:
	case t.Implements(marshaler), reflect.PointerTo(t).Implements(marshaler):
		f = textForm
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		f = bytesForm
	case kind == reflect.String, kind == reflect.Bool, kind >= reflect.Int && kind <= reflect.Float64:
		f = plainForm
	}
	forms.Store(t, f)
	return f
}

func marshalText(r reflect.Value) ([]byte, error) {
	if r.Kind() == reflect.Pointer && r.IsNil() {
		return nil, errNil
	}
	if !r.Type().Implements(marshaler) {
		p := reflect.New(r.Type())
		p.Elem().Set(r)
		r = p
	}
	return checked(r.Interface().(encoding.TextMarshaler).MarshalText())
}

func checked(text []byte, err error) ([]byte, error) {
	if err == nil && !utf8.Valid(text) {
		return nil, errUTF8
	}
	return text, err
}

func plain(r reflect.Value) ([]byte, error) {
	switch {
	case r.Kind() == reflect.String:
		return checked([]byte(r.String()), nil)
	case r.Kind() == reflect.Bool:
		return strconv.AppendBool(nil, r.Bool()), nil
	case r.CanInt():
		return strconv.AppendInt(nil, r.Int(), 10), nil
	case r.CanUint():
		return strconv.AppendUint(nil, r.Uint(), 10), nil
	}
	f := r.Float()
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return nil, errFloat
	case f == 0:
		return []byte{'0'}, nil
	}
	return strconv.AppendFloat(nil, f, 'f', -1, r.Type().Bits()), nil
}

// unmarshalText reads into what p points to: a value whose pointer has UnmarshalText, or a pointer that has it, such as a
// *big.Int.
func unmarshalText(data []byte, p reflect.Value) error {
	if !utf8.Valid(data) {
		return errUTF8
	}
	to := p
	if !p.Type().Implements(unmarshaler) && p.Elem().Kind() == reflect.Pointer {
		to = reflect.New(p.Type().Elem().Elem())
	}
	u, ok := to.Interface().(encoding.TextUnmarshaler)
	if !ok {
		return errType
	}
	if err := u.UnmarshalText(data); err != nil {
		return discreet(err)
	}
	if to != p {
		p.Elem().Set(to)
	}
	return nil
}

func setPlain(r reflect.Value, text string) error {
	var err error
	switch {
	case r.Kind() == reflect.String:
		r.SetString(text)
	case r.Kind() == reflect.Bool:
		var b bool
		if b, err = strconv.ParseBool(text); err == nil {
			r.SetBool(b)
		}
	case r.CanInt():
		var n int64
		if n, err = strconv.ParseInt(text, 10, r.Type().Bits()); err == nil {
			r.SetInt(n)
		}
	case r.CanUint():
		var n uint64
		if n, err = strconv.ParseUint(text, 10, r.Type().Bits()); err == nil {
			r.SetUint(n)
		}
	default:
		var f float64
		f, err = strconv.ParseFloat(text, r.Type().Bits())
		switch {
		case err != nil:
		case math.IsNaN(f), math.IsInf(f, 0):
			return errFloat
		default:
			r.SetFloat(f)
		}
	}
	if errors.Is(err, strconv.ErrRange) {
		return strconv.ErrRange // the whole error would repeat the payload
	}
	if err != nil {
		return strconv.ErrSyntax
	}
	return nil
}
