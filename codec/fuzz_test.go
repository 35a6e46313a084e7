package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/codec"
)

func typeName(v any) string { return fmt.Sprintf("%T", v) }

// hostile are inputs that ask for more than they bring.
var hostile = []string{
	"\xdd\xff\xff\xff\xff", "\xdc\xff\xff", "\xdf\xff\xff\xff\xff", "\xde\xff\xff", "\xdb\xff\xff\xff\xff", "\xda\xff\xff", "\xd9\xff",
	"\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x01", "\xc7\xff\x01", "\x91\xdd\xff\xff\xff\xff", "\x81\xa1A\xdd\xff\xff\xff\xff",
	strings.Repeat("\x91", 20_000), strings.Repeat("\x81\xa1a", 20_000), "\x01\x01", "\xc1", "", "\x9f", "\xd8", "\xcf\x00",
}

// targets are types to decode into: each allocates in its own way.
func targets() []any {
	return []any{
		new([]int), new([]string), new([]byte), new(map[string]int), new(any), new(order), new([]order),
		new(map[string]any), new([4]int), new(string), new(int), new(*order),
	}
}

func FuzzMsgPackDecode(f *testing.F) {
	for _, data := range hostile {
		f.Add([]byte(data))
	}
	sample, err := codec.MsgPack{}.Encode(order{ID: 1, Items: []item{{"x", 1, 2}}})
	require.NoError(f, err)
	f.Add(sample)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, into := range targets() {
			if err := codec.Unmarshal(codec.MsgPack{}, data, into); err != nil {
				require.ErrorIs(t, err, codec.ErrDecode)
			}
		}
	})
}

func TestHostileBytesCostLittle(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, data := range hostile {
		for _, into := range targets() {
			err := codec.Unmarshal(codec.MsgPack{}, []byte(data), into)
			require.ErrorIs(t, err, codec.ErrDecode, "%d bytes into a %T", len(data), into)
		}
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}

func TestBytesCostNoMoreThanTheirElements(t *testing.T) {
	type wide struct{ _ [512]byte }
	const n = 1 << 14
	data := append([]byte{0xdd, 0, 0, n >> 8, 0}, bytes.Repeat([]byte{0xc0}, n)...)
	for _, into := range []any{new([]wide), new([]*wide), new([][]wide)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, codec.Unmarshal(codec.MsgPack{}, data, into))
		runtime.ReadMemStats(&after)
		size := uint64(reflect.TypeOf(into).Elem().Elem().Size())
		require.Less(t, after.TotalAlloc-before.TotalAlloc, 4*n*size, "%T", into)
	}
}

func FuzzMsgPackRoundTrip(f *testing.F) {
	f.Add(int64(1), "name", 1.5, []byte("data"))
	f.Fuzz(func(t *testing.T, id int64, name string, price float64, data []byte) {
		type record struct {
			ID    int64
			Name  string
			Price float64
			Data  []byte
			Any   any
		}
		want := record{id, name, price, data, name}
		encoded, err := codec.Marshal(codec.MsgPack{}, want)
		require.NoError(t, err)
		var got record
		require.NoError(t, codec.Unmarshal(codec.MsgPack{}, encoded, &got))
		again, err := codec.Marshal(codec.MsgPack{}, got)
		require.NoError(t, err)
		require.Equal(t, encoded, again)
	})
}

func FuzzTextDecode(f *testing.F) {
	for _, data := range []string{"", "1", "1.0E10", "{}", `{"a":[1,{"b":null}]}`, "\xff", "null", "true", `"AQID"`} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, c := range []codec.Codec{codec.JSON{}, codec.Text{}, codec.Bytes{}} {
			for _, into := range append(targets(), new(float64), new(bool), new(uint8)) {
				err := codec.Unmarshal(c, data, into)
				require.True(t, err == nil || errors.Is(err, codec.ErrDecode))
			}
		}
	})
}

func FuzzJSONRoundTrip(f *testing.F) {
	f.Add(`{"b":1,"a":[null,{"c":null,"d":1e400}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var v map[string]any
		if codec.Unmarshal(codec.JSON{}, []byte(text), &v) != nil {
			return
		}
		first, err := codec.Marshal(codec.JSON{}, v)
		require.NoError(t, err)
		var again map[string]any
		require.NoError(t, codec.Unmarshal(codec.JSON{}, first, &again))
		second, err := codec.Marshal(codec.JSON{}, again)
		require.NoError(t, err)
		require.Equal(t, string(first), string(second))
	})
}

// FuzzText looks for values that come back as others, and for equal ones that differ in bytes.
func FuzzText(f *testing.F) {
	f.Add("a", int64(-1), uint64(1), 1e300, float32(0.1), []byte{0}, true)
	f.Fuzz(func(t *testing.T, s string, i int64, u uint64, d float64, e float32, b []byte, ok bool) {
		comesBack(t, s)
		comesBack(t, i)
		comesBack(t, u)
		comesBack(t, d)
		comesBack(t, e)
		comesBack(t, ok)
		comesBack(t, struct {
			S string
			D float64
		}{strings.ToValidUTF8(s, ""), d})
		data, err := codec.Marshal(codec.Text{}, b)
		require.NoError(t, err)
		require.Equal(t, string(b), string(data))
	})
}

func comesBack[T comparable](t *testing.T, v T) {
	data, err := codec.Marshal(codec.Text{}, v)
	if err != nil { // not UTF-8, or not finite
		require.ErrorIs(t, err, codec.ErrEncode)
		return
	}
	var got T
	require.NoError(t, codec.Unmarshal(codec.Text{}, data, &got))
	require.True(t, got == v, "%v came back as %v", v, got) // NaN, which differs from itself, was refused
	again, err := codec.Marshal(codec.Text{}, got)
	require.NoError(t, err)
	require.Equal(t, string(data), string(again))
}
