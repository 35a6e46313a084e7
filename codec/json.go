package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON encodes as plain JSON, as Redisson's TypedJsonJacksonCodec does: without type information, members in alphabetical order
// and without those that are null, and with nothing escaped but quotes, backslashes, control characters and those beyond
// U+FFFF, which are two \u each. A floating-point number that stands alone has Java's notation (1.0, 1.0E10). Inside of other values
// numbers are written as encoding/json does, which Java reads alike; so it does a time.Time, which is text in RFC 3339. Decode ignores
// members that the type does not have.
type JSON struct{}

// Encode returns v as JSON.
func (JSON) Encode(v any) ([]byte, error) {
	if f := reflect.ValueOf(v); f.IsValid() && f.CanFloat() && !implements(v) {
		if text := javaFloat(f); text != "NaN" && text != "Infinity" && text != "-Infinity" {
			return []byte(text), nil
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if !bytes.HasPrefix(data, []byte("{")) && !bytes.Contains(data, []byte("{")) {
		return javaText(data), nil // nothing has members
	}
	data, err := tidied(data)
	return javaText(data), err
}

// fourBytes is the least first byte of a character beyond U+FFFF.
const fourBytes = 0xF0

// javaText returns JSON with the strings escaped as Java escapes them.
func javaText(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u`)) && !slices.ContainsFunc(data, func(c byte) bool { return c >= fourBytes }) {
		return data
	}
	text := make([]byte, 0, len(data)+16)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch code, escaped := codeOf(data); {
		case escaped:
			text, size = appendCode(text, code), len(`\u0000`)
		case data[0] == '\\':
			size = min(len(`\n`), len(data))
			text = append(text, data[:size]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			text = appendCode(appendCode(text, high), low)
		default:
			text = append(text, data[:size]...)
		}
		data = data[size:]
	}
	return text
}

// codeOf reads the \u escape that data may begin with.
func codeOf(data []byte) (code rune, ok bool) {
	if len(data) < len(`\u0000`) || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(n), err == nil
}

// appendCode appends a character that came escaped, or half of one: escaped only if it must be.
func appendCode(text []byte, code rune) []byte {
	switch {
	case code == '"' || code == '\\':
		return append(text, '\\', byte(code))
	case strings.ContainsRune("\b\t\n\f\r", code):
		return append(text, '\\', "btn_fr"[code-'\b'])
	case code < ' ' || utf16.IsSurrogate(code):
		return fmt.Appendf(text, `\u%04X`, code)
	}
	return utf8.AppendRune(text, code)
}

func implements(v any) bool {
	_, ok := v.(json.Marshaler)
	return ok
}

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

// tidied returns JSON with the members of all objects in alphabetical order, and without those that are null.
func tidied(data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var b bytes.Buffer
	if err := tidy(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// tidy copies the next value of d.
func tidy(b *bytes.Buffer, d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return tidyObject(b, d)
	case json.Delim('['):
		return tidyArray(b, d)
	}
	return literal(b, token)
}

func tidyObject(b *bytes.Buffer, d *json.Decoder) error {
	type member struct {
		name  string
		value []byte
	}
	var members []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value bytes.Buffer
		if err := tidy(&value, d); err != nil {
			return err
		}
		if text, ok := name.(string); ok && value.String() != "null" {
			members = append(members, member{text, value.Bytes()})
		}
	}
	slices.SortStableFunc(members, func(m, n member) int { return bytes.Compare([]byte(m.name), []byte(n.name)) })
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := literal(b, m.name); err != nil {
			return err
		}
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	_, err := d.Token() // the end of the object
	return err
}

func tidyArray(b *bytes.Buffer, d *json.Decoder) error {
	b.WriteByte('[')
	for i := 0; d.More(); i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := tidy(b, d); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	_, err := d.Token() // the end of the array
	return err
}

func literal(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line's end
	return nil
}
