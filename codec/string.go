package codec

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	errType = errors.New("the codec does not support the type")
	errUTF8 = errors.New("the text is not valid UTF-8")
)

// String encodes values as plain text, as Redisson's StringCodec does: strings unchanged, integers in decimal,
// floating-point numbers in Java's notation (1.0, 1.0E10), true and false, and the text of an [encoding.TextMarshaler].
// Text must be valid UTF-8. It decodes into the same types, and into an interface as a string.
type String struct{}

// Encode returns v as text.
func (String) Encode(v any) ([]byte, error) {
	if m, ok := v.(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err == nil && !utf8.Valid(text) {
			return nil, errUTF8
		}
		return text, err
	}
	r := reflect.ValueOf(v)
	switch {
	case !r.IsValid():
		return nil, errType
	case r.Kind() == reflect.String:
		if !utf8.ValidString(r.String()) {
			return nil, errUTF8
		}
		return []byte(r.String()), nil
	case r.Kind() == reflect.Bool:
		return strconv.AppendBool(nil, r.Bool()), nil
	case r.CanInt():
		return strconv.AppendInt(nil, r.Int(), 10), nil
	case r.CanUint():
		return strconv.AppendUint(nil, r.Uint(), 10), nil
	case r.CanFloat():
		return []byte(javaFloat(r)), nil
	}
	return nil, errType
}

// Decode reads text into the pointer v.
func (c String) Decode(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errUTF8
	}
	if u, ok := v.(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText(data); err != nil {
			return discreet(err)
		}
		return nil
	}
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("%w: %T is not a pointer, or is nil", errType, v)
	}
	to := p.Elem()
	if to.Kind() != reflect.Pointer {
		return setText(to, string(data))
	}
	fresh := reflect.New(to.Type().Elem()) // of a *big.Int, say
	if err := c.Decode(data, fresh.Interface()); err != nil {
		return err
	}
	to.Set(fresh)
	return nil
}

func setText(r reflect.Value, text string) error {
	var err error
	switch {
	case r.Kind() == reflect.String:
		r.SetString(text)
	case r.Kind() == reflect.Interface && r.NumMethod() == 0:
		r.Set(reflect.ValueOf(text))
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
	case r.CanFloat():
		var f float64
		if f, err = strconv.ParseFloat(text, r.Type().Bits()); err == nil {
			r.SetFloat(f)
		}
	default:
		return errType
	}
	if errors.Is(err, strconv.ErrRange) {
		return strconv.ErrRange // the whole error would repeat the payload
	}
	if err != nil {
		return strconv.ErrSyntax
	}
	return nil
}

// javaFloat returns a number in the format of Java's Double.toString and Float.toString.
func javaFloat(r reflect.Value) string {
	f, bits := r.Float(), r.Type().Bits()
	switch abs := math.Abs(f); {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(fmt.Sprintf("%+f", f), "+") + "inity"
	case f == 0 || abs >= 1e-3 && abs < 1e7:
		text := strconv.FormatFloat(f, 'f', -1, bits)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, bits), "e")
	if !strings.Contains(digits, ".") {
		digits += ".0"
	}
	n, _ := strconv.Atoi(exponent) // it comes from FormatFloat
	return digits + "E" + strconv.Itoa(n)
}
