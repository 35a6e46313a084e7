package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// JSON encodes with [encoding/json], including its struct tags, Marshalers and field order. Decode ignores members that
// the type does not have.
type JSON struct{}

// Encode returns v as [json.Marshal] does.
func (JSON) Encode(v any) ([]byte, error) { return json.Marshal(v) }

// Decode reads one JSON value into the pointer v.
func (JSON) Decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil {
		return jsonRefusal(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}
