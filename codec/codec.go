package codec

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
)

// Codec encodes and decodes the values of an object. It must be safe for concurrent use, and must not retain the values
// or the bytes.
type Codec interface {
	// Encode returns v as bytes.
	Encode(v any) ([]byte, error)
	// Decode decodes data into v, which is a pointer.
	Decode(data []byte, v any) error
}

var (
	// ErrEncode is returned (wrapped) for a value that a codec cannot encode.
	ErrEncode = errors.New("value cannot be encoded")
	// ErrDecode is returned (wrapped) for bytes that a codec cannot decode.
	ErrDecode = errors.New("bytes cannot be decoded")
)

// Marshal encodes v with c. Its error wraps [ErrEncode] and the codec's error, and names the codec and the type of v.
// If the codec panics, Marshal returns such an error.
//
// [Text] goes by the static type T: an interface is JSON, whatever is in it.
func Marshal[T any](c Codec, v T) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("%w: %T panicked on a %T: %v", ErrEncode, c, v, p)
		}
	}()
	if _, ok := c.(Text); ok && reflect.TypeFor[T]().Kind() == reflect.Interface {
		data, err = asJSON(v)
	} else {
		data, err = c.Encode(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %T on a %T: %w", ErrEncode, c, v, err)
	}
	return data, nil
}

// Unmarshal decodes data with c into v, which is a pointer. Its error wraps [ErrDecode] and the codec's error, and
// names the codec and the type of v. If the codec panics, Unmarshal returns such an error, with the type of the panic's
// value. What v points to is undefined after an error.
//
// With the codecs of this package, the text of the error contains nothing of data. The error of a type's own method can
// be reached with [errors.As].
func Unmarshal(c Codec, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %T panicked on a %T: %s", ErrDecode, c, v, discreetPanic(p))
		}
	}()
	if err := c.Decode(data, v); err != nil {
		return fmt.Errorf("%w: %T into a %T: %w", ErrDecode, c, v, err)
	}
	return nil
}

// discreetPanic says what a panic was about. Its text may repeat the data, unless it is Go's own.
func discreetPanic(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", p)
}
