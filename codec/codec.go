package codec

import (
	"errors"
	"fmt"
)

// Codec encodes and decodes the values of an object. It must be safe for concurrent use, and must keep neither the
// values nor the bytes.
type Codec interface {
	// Encode returns the bytes of v.
	Encode(v any) ([]byte, error)
	// Decode sets what v, a pointer, points to from data.
	Decode(data []byte, v any) error
}

var (
	// ErrEncode is returned (wrapped) for a value that its codec refuses.
	ErrEncode = errors.New("value cannot be encoded")
	// ErrDecode is returned (wrapped) for bytes that its codec refuses.
	ErrDecode = errors.New("bytes cannot be decoded")
)

// Marshal encodes v with c. Its error wraps [ErrEncode] and the codec's own, and names the codec and the type of v; a codec that
// panics has refused the value.
func Marshal(c Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("%w: %T panicked on a %T: %v", ErrEncode, c, v, p)
		}
	}()
	data, err = c.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %T on a %T: %w", ErrEncode, c, v, err)
	}
	return data, nil
}

// Unmarshal decodes data into v, a pointer, with c. Its error wraps [ErrDecode] and the codec's own, and names the codec and the type
// of v; a codec that panics has refused the bytes. The text of what this package's codecs say repeats nothing of the bytes; the error of
// a type's own method stays in reach of [errors.As]. What v points to is undefined after an error.
func Unmarshal(c Codec, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %T panicked on a %T: %v", ErrDecode, c, v, p)
		}
	}()
	if err := c.Decode(data, v); err != nil {
		return fmt.Errorf("%w: %T into a %T: %w", ErrDecode, c, v, err)
	}
	return nil
}
