package codec

import (
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// MsgPack encodes as MessagePack, structs as maps of their fields. It is the default, but in
// grid.
//
// Before it allocates anything, Decode refuses a length that exceeds the remaining bytes, more than 10,000 levels of
// nesting (100 if the type holds an interface value), and bytes after the value.
type MsgPack struct{}

// Encode returns v as MessagePack.
func (MsgPack) Encode(v any) ([]byte, error) { return msgpack.Marshal(v) }

// Decode reads one MessagePack value into the pointer v.
func (MsgPack) Decode(data []byte, v any) error {
	levels, err := skim(data)
	if err != nil {
		return err
	}
	if levels > maxLevelsAny && takesAny(reflect.TypeOf(v), map[reflect.Type]bool{}) {
		return fmt.Errorf("%d levels of nesting for an interface value, more than %d", levels, maxLevelsAny)
	}
	return msgpackRefusal(msgpack.Unmarshal(data, v))
}

// takesAny reports whether a value of the type can hold an interface value at any depth.
func takesAny(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return takesAny(t.Elem(), seen)
	case reflect.Map:
		return takesAny(t.Key(), seen) || takesAny(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if takesAny(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
