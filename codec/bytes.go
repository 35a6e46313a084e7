package codec

import (
	"fmt"
	"reflect"
	"slices"
)

// Bytes leaves byte slices as they are, as Redisson's ByteArrayCodec does. Use it for protocol buffers or a format of
// your own.
type Bytes struct{}

// Encode returns a copy of v, which is a []byte or a type based on it.
func (Bytes) Encode(v any) ([]byte, error) {
	r := reflect.ValueOf(v)
	if !r.IsValid() || r.Kind() != reflect.Slice || r.Type().Elem().Kind() != reflect.Uint8 {
		return nil, errType
	}
	return slices.Clone(r.Bytes()), nil
}

// Decode sets v, a pointer to a []byte, to a type based on it, or to an interface, to a copy of data.
func (Bytes) Decode(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("%w: %T is not a pointer, or is nil", errType, v)
	}
	own := append(make([]byte, 0, len(data)), data...)
	switch r := p.Elem(); {
	case r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8:
		r.SetBytes(own)
	case r.Kind() == reflect.Interface && r.NumMethod() == 0:
		r.Set(reflect.ValueOf(own))
	default:
		return errType
	}
	return nil
}
