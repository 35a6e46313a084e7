package codec_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/codec"
)

type item struct {
	SKU    string
	Amount int
	Price  float64
}

type order struct {
	ID    int64             `json:"id"`
	Name  string            `json:"name"`
	Items []item            `json:"items"`
	Tags  map[string]string `json:"tags"`
	Note  *string           `json:"note"`
	At    time.Time         `json:"at"`
}

func TestStructsComeBack(t *testing.T) {
	note := "a <b> & c"
	want := order{
		ID: 1 << 60, Name: "名前", Items: []item{{"x", 2, 0.1}, {"y", -1, 1e300}},
		Tags: map[string]string{"b": "2", "a": "1"}, Note: &note, At: time.UnixMicro(1_700_000_000_123_456).UTC(),
	}
	for _, c := range []codec.Codec{codec.MsgPack{}, codec.JSON{}} {
		data, err := codec.Marshal(c, want)
		require.NoError(t, err)
		var got order
		require.NoError(t, codec.Unmarshal(c, data, &got), "%T", c)
		got.At = got.At.UTC()
		assert.Equal(t, want, got, "%T", c)
	}
}

// written is what section 17 of the wire format says of plain values.
var written = []struct {
	codec codec.Codec
	value any
	want  string
}{
	{codec.Text{}, "hello", "hello"},
	{codec.Text{}, "", ""},
	{codec.Text{}, name("n"), "n"},
	{codec.Text{}, 42, "42"},
	{codec.Text{}, uint8(7), "7"},
	{codec.Text{}, 3.0, "3"},
	{codec.Text{}, math.Copysign(0, -1), "0"},
	{codec.Text{}, 1e21, "1000000000000000000000"},
	{codec.Text{}, -1.5e-7, "-0.00000015"},
	{codec.Text{}, 0.1, "0.1"},
	{codec.Text{}, float32(0.1), "0.1"},
	{codec.Text{}, true, "true"},
	{codec.Text{}, []byte{1, 0, 255}, "\x01\x00\xff"},
	{codec.Text{}, blob("b"), "b"},
	{codec.Text{}, uuid.Nil, "00000000-0000-0000-0000-000000000000"},
	{codec.Text{}, big.NewInt(5), "5"},
	{codec.Text{}, *big.NewInt(5), "5"},
	{codec.Text{}, time.Unix(0, 0).UTC(), "1970-01-01T00:00:00Z"},
	{codec.Text{}, item{"x", 1, 0.5}, `{"SKU":"x","Amount":1,"Price":0.5}`},
	{codec.Text{}, map[string]int{"b": 2, "a": 1}, `{"a":1,"b":2}`},
	{codec.Text{}, []string{"a"}, `["a"]`},
	{codec.Text{}, [2]int{1, 2}, "[1,2]"},
	{codec.Text{}, new(string), `""`},
	{codec.Bytes{}, []byte{1, 0, 255}, "\x01\x00\xff"},
}

func TestPlainValuesAreWrittenAsTheWireFormatSays(t *testing.T) {
	for _, tc := range written {
		data, err := tc.codec.Encode(tc.value)
		require.NoError(t, err, "%T of %v", tc.codec, tc.value)
		assert.Equal(t, tc.want, string(data), "%T of %v", tc.codec, tc.value)
	}
}

// Members keep the order of the struct, and null stays: a value that is read and written again is the same text.
func TestJSONKeepsMembersAsEncodingJSONWritesThem(t *testing.T) {
	type person struct {
		Name string  `json:"name"`
		Age  int     `json:"age"`
		Note *string `json:"note"`
	}
	for want, v := range map[string]any{
		`{"name":"bob","age":7,"note":null}`: person{"bob", 7, nil},
		`[1,null,{"a":[],"b":null}]`:         []any{1, nil, map[string]any{"b": nil, "a": []int{}}},
		`{"b":null,"a":1}`:                   json.RawMessage(`{"b":null,"a":1}`),
		`1`:                                  1.0,
		`9223372036854775807`:                int64(math.MaxInt64),
		`"AQID"`:                             []byte{1, 2, 3},
	} {
		got, err := codec.Marshal(codec.JSON{}, v)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

type (
	name  string
	blob  []byte
	level int8
)

func back[T any](t *testing.T, c codec.Codec, values ...T) {
	t.Helper()
	for _, want := range values {
		data, err := codec.Marshal(c, want)
		require.NoError(t, err)
		var got T
		require.NoError(t, codec.Unmarshal(c, data, &got), "%T of a %T", c, want)
		assert.Equal(t, want, got, "%T", c)
	}
}

func TestPlainValuesComeBack(t *testing.T) {
	for _, c := range []codec.Codec{codec.MsgPack{}, codec.JSON{}, codec.Text{}} {
		back(t, c, "", "hello", "名前", "a\x00b")
		back(t, c, name("n"))
		back(t, c, 0, -1, math.MinInt64, math.MaxInt64)
		back(t, c, uint64(math.MaxUint64))
		back(t, c, level(-128))
		back(t, c, 0.0, 1.0, 1e10, -1e-300, math.MaxFloat64, math.SmallestNonzeroFloat64)
		back(t, c, float32(0.1), float32(1e30))
		back(t, c, true, false)
		back(t, c, uuid.MustParse("123e4567-e89b-12d3-a456-426614174000"))
	}
	back(t, codec.Bytes{}, []byte{}, []byte{0, 1, 255})
	back(t, codec.Bytes{}, blob{1})
}

func TestBytesAreCopied(t *testing.T) {
	data := []byte("abc")
	encoded, err := codec.Bytes{}.Encode(data)
	require.NoError(t, err)
	var decoded []byte
	require.NoError(t, codec.Bytes{}.Decode(encoded, &decoded))
	data[0], encoded[1] = 'x', 'x'
	assert.Equal(t, "abc", string(decoded))
}

// The type of a variable decides, which is an interface here, and not the string in it.
func TestTextOfAnInterfaceIsJSON(t *testing.T) {
	for want, v := range map[string]any{`"42"`: "42", "42": 42.0, "null": nil, `{"a":[true]}`: map[string]any{"a": []any{true}}} {
		data, err := codec.Marshal(codec.Text{}, v)
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
		back(t, codec.Text{}, v)
	}
}

func TestBytesFitAnInterface(t *testing.T) {
	var v any
	require.NoError(t, codec.Bytes{}.Decode([]byte("42"), &v))
	assert.Equal(t, []byte("42"), v)
}

func TestRefusedValuesNameCodecAndType(t *testing.T) {
	for _, tc := range []struct {
		codec codec.Codec
		value any
		want  []string
	}{
		{codec.MsgPack{}, make(chan int), []string{"codec.MsgPack", "chan int"}},
		{codec.JSON{}, func() {}, []string{"codec.JSON", "func()"}},
		{codec.JSON{}, math.NaN(), []string{"codec.JSON", "float64"}},
		{codec.Text{}, make(chan int), []string{"codec.Text", "chan int"}},
		{static{codec.Text{}}, "\xff", []string{"valid UTF-8", "string"}},
		{codec.Text{}, "\xff", []string{"valid UTF-8", "string"}},
		{codec.Text{}, order{Name: "\xfe"}, []string{"valid UTF-8", "order"}},
		{codec.Text{}, map[string]int{"a\xff": 1}, []string{"valid UTF-8", "map[string]int"}},
		{static{codec.Text{}}, math.NaN(), []string{"not finite", "float64"}},
		{static{codec.Text{}}, float32(math.Inf(-1)), []string{"not finite", "float32"}},
		{static{codec.Text{}}, (*big.Int)(nil), []string{"nil pointer", "*big.Int"}},
		{codec.Bytes{}, "text", []string{"codec.Bytes", "string"}},
		{codec.Bytes{}, nil, []string{"codec.Bytes"}},
		{panics{}, 1, []string{"codec_test.panics", "int", "boom"}},
	} {
		_, err := codec.Marshal(tc.codec, tc.value)
		require.ErrorIs(t, err, codec.ErrEncode, "%T of %T", tc.codec, tc.value)
		for _, part := range tc.want {
			assert.ErrorContains(t, err, part)
		}
	}
}

// static is a codec that does not see that the table above has interfaces.
type static struct{ codec.Codec }

// panics is a codec with a defect.
type panics struct{}

func (panics) Encode(any) ([]byte, error) { panic("boom") }
func (panics) Decode([]byte, any) error   { panic("boom") }

func TestRefusedBytesNameCodecAndType(t *testing.T) {
	var number int
	var text string
	var list []int
	for _, tc := range []struct {
		codec codec.Codec
		data  string
		into  any
	}{
		{codec.MsgPack{}, "", &number},
		{codec.MsgPack{}, "\xdd\xff\xff\xff\xff", &list},
		{codec.MsgPack{}, "\x01\x01", &number},
		{codec.MsgPack{}, "\xc1", &number},
		{codec.MsgPack{}, "\xa3ab", &text},
		{codec.MsgPack{}, "\xa1a", &number},
		{codec.JSON{}, "", &number},
		{codec.JSON{}, "1 2", &number},
		{codec.JSON{}, `{"a"`, &list},
		{codec.Text{}, "x", &number},
		{codec.Text{}, "99999999999999999999", &number},
		{codec.Text{}, "\xff", &text},
		{codec.Text{}, "x", text},
		{codec.Text{}, "NaN", new(float64)},
		{codec.Text{}, "-Infinity", new(float32)},
		{codec.Text{}, "x", new(half)},
		{codec.Text{}, "{", new(order)},
		{codec.Text{}, "x", new(any)},
		{codec.Bytes{}, "x", &text},
		{panics{}, "x", &text},
	} {
		err := codec.Unmarshal(tc.codec, []byte(tc.data), tc.into)
		require.ErrorIs(t, err, codec.ErrDecode, "%T of %q", tc.codec, tc.data)
		assert.ErrorContains(t, err, typeName(tc.codec))
		assert.ErrorContains(t, err, typeName(tc.into))
	}
}

func TestErrorsDoNotRepeatThePayload(t *testing.T) {
	encoded, err := codec.Marshal(codec.MsgPack{}, "4111secret")
	require.NoError(t, err)
	for _, tc := range []struct {
		codec codec.Codec
		data  string
		into  any
	}{
		{codec.Text{}, "4111secret", new(int)},
		{codec.Text{}, "4111secret", new(time.Time)},
		{codec.Text{}, "4111secret", new(big.Int)},
		{codec.JSON{}, "41110000", new(int8)},
		{codec.JSON{}, `{"id":41110000.5}`, new(order)},
		{codec.JSON{}, `{"4111secret":1}`, new(map[int]int)},
		{codec.JSON{}, `"4111secret"`, new(time.Time)},
		{codec.JSON{}, `"4111secret"`, new(json.Number)},
		{codec.JSON{}, `{"N":"4111secret"}`, new(struct {
			N int `json:",string"`
		})},
		{codec.MsgPack{}, string(encoded), new(int)},
		{codec.MsgPack{}, string(encoded), new(secretive)},
	} {
		err := codec.Unmarshal(tc.codec, []byte(tc.data), tc.into)
		require.ErrorIs(t, err, codec.ErrDecode, "%T of %q into a %T", tc.codec, tc.data, tc.into)
		assert.NotContains(t, err.Error(), "4111", "%T into a %T", tc.codec, tc.into)
	}
}

// secretive is a type whose error repeats the text.
type secretive struct{}

func (*secretive) UnmarshalText(text []byte) error { return fmt.Errorf("no %s", text) }

func TestErrorOfATypesOwnMethodStaysInReach(t *testing.T) {
	var parse *time.ParseError
	assert.ErrorAs(t, codec.Unmarshal(codec.JSON{}, []byte(`"x"`), new(time.Time)), &parse)
	assert.ErrorAs(t, codec.Unmarshal(codec.Text{}, []byte("x"), new(time.Time)), &parse)
	err := codec.Unmarshal(codec.JSON{}, []byte(`{"id":"x"}`), new(order))
	var kind *json.UnmarshalTypeError
	assert.ErrorAs(t, err, &kind)
	assert.ErrorContains(t, err, "order.id", "where it stands")
}

func TestOwnErrorStaysInReach(t *testing.T) {
	own := errors.New("own")
	err := codec.Unmarshal(fails{own}, nil, new(int))
	assert.ErrorIs(t, err, own)
}

type fails struct{ err error }

func (f fails) Encode(any) ([]byte, error) { return nil, f.err }
func (f fails) Decode([]byte, any) error   { return f.err }

func TestNestingIsBounded(t *testing.T) {
	nested := func(levels int) []byte { return append(bytes.Repeat([]byte{0x91}, levels), 0x01) }
	var value any
	var inStruct struct{ A []any }
	require.NoError(t, codec.Unmarshal(codec.MsgPack{}, nested(100), &value))
	require.ErrorIs(t, codec.Unmarshal(codec.MsgPack{}, nested(101), &value), codec.ErrDecode)
	require.ErrorIs(t, codec.Unmarshal(codec.MsgPack{}, append([]byte("\x81\xa1A"), nested(101)...), &inStruct), codec.ErrDecode)

	type list []list
	deep := func(levels int) []byte { return append(bytes.Repeat([]byte{0x91}, levels-1), 0x90) }
	var typed list
	assert.NoError(t, codec.Unmarshal(codec.MsgPack{}, deep(9_999), &typed))
	err := codec.Unmarshal(codec.MsgPack{}, append(bytes.Repeat([]byte{0x91}, 10_001), 0x90), &typed)
	assert.ErrorContains(t, err, "more than 10000 levels")
}

// half is a type that can be written as text, and not be read.
type half struct{}

func (half) MarshalText() ([]byte, error) { return []byte("half"), nil }

// Values and pointers of a type with MarshalText are the same text, whichever of them has the method.
func TestTypesThatAreTextComeBack(t *testing.T) {
	back(t, codec.Text{}, big.NewInt(5))
	back(t, codec.Text{}, *big.NewInt(5))
	back(t, codec.Text{}, time.Unix(1, 0).UTC())
}

func TestTextOfEverythingElseIsJSONAndComesBack(t *testing.T) {
	back(t, codec.Text{}, order{ID: 1, Tags: map[string]string{"b": "2", "a": "1"}})
	back(t, codec.Text{}, []order{{Name: "x"}, {Name: "\ufffd"}, {Name: `\ufffd`}, {Name: `\\ufffd`}})
	back(t, codec.Text{}, map[int]bool{2: true, 1: false})
	back(t, codec.Text{}, [3]uint8{1, 2, 3})
	back(t, codec.Text{}, []byte{}, []byte{0, 255})
	word := "w"
	back(t, codec.Text{}, &word, nil)
}

func TestTextReadsWhatJavaWrites(t *testing.T) {
	var f float64
	require.NoError(t, codec.Text{}.Decode([]byte("1.0E10"), &f))
	assert.Equal(t, 1e10, f)
}

// fussy is a type that panics with the text, as uuid.MustParse and its like do.
type fussy struct{}

var _ encoding.TextUnmarshaler = (*fussy)(nil)

func (*fussy) UnmarshalText(text []byte) error { panic(fmt.Sprintf("cannot parse %s", text)) }

func TestPanicOfATypesOwnMethodDoesNotRepeatThePayload(t *testing.T) {
	for c, data := range map[codec.Codec]string{codec.Text{}: "4111secret", codec.JSON{}: `"4111secret"`} {
		err := codec.Unmarshal(c, []byte(data), new(fussy))
		require.ErrorIs(t, err, codec.ErrDecode, "%T", c)
		assert.NotContains(t, err.Error(), "4111", "%T", c)
	}
}
