package grid

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/errs"
)

// CheckIdentity returns ErrInvalid for a type of keys or members of which a codec leaves a field out: they are found by their bytes.
func CheckIdentity[T any](c codec.Codec, what string) error {
	switch c.(type) {
	case codec.Text, codec.JSON:
	default:
		return nil
	}
	t := reflect.TypeFor[T]()
	field := leftOut(t)
	if field == "" || reflect.PointerTo(t).Implements(marshalsText) {
		return nil
	}
	return fmt.Errorf("%w: the %s has the field %s: JSON leaves it out, so that %ss which differ by it alone would be one",
		errs.ErrInvalid, what, field, what)
}

//nolint:gochecknoglobals // constants in all but name
var (
	marshalsText = reflect.TypeFor[encoding.TextMarshaler]()
	marshalsJSON = reflect.TypeFor[json.Marshaler]()
)

// leftOut returns the path of the first field that JSON leaves out, or nothing.
func leftOut(t reflect.Type) string {
	kind := t.Kind()
	switch {
	case kind != reflect.Struct && kind != reflect.Array, t.Implements(marshalsText), t.Implements(marshalsJSON):
		return ""
	case kind == reflect.Array:
		return leftOut(t.Elem())
	}
	for i := range t.NumField() {
		f := t.Field(i)
		promotes := f.Anonymous && f.Type.Kind() == reflect.Struct
		switch {
		case f.Name == "_": // which Go does not compare either
			continue
		case f.Tag.Get("json") == "-", !f.IsExported() && !promotes:
			return f.Name
		}
		if field := leftOut(f.Type); field != "" {
			return f.Name + "." + field
		}
	}
	return ""
}
