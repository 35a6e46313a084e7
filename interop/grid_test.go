package interop_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
)

// goods is Price in Peer.java, with its fields in the order in which Java writes them: equal values have equal bytes.
type goods struct {
	Cents int64  `json:"cents"`
	Name  string `json:"name"`
}

// sample is three values of a codec, and their texts in the commands and replies of Java.
type sample[T any] struct {
	codec  string
	values [3]T
	texts  [3]string
}

var (
	words  = sample[string]{"text", [3]string{"grün", "", "1,5"}, [3]string{"grün", "", "1,5"}}
	priced = sample[goods]{"json", [3]goods{{250, "tea"}, {99, "grün"}, {math.MaxInt64, `"\/`}}, [3]string{"tea,250", "grün,99", `"\/,9223372036854775807`}}
	whole  = sample[int64]{"long", [3]int64{0, math.MinInt64, 1<<53 + 1}, [3]string{"0", "-9223372036854775808", "9007199254740993"}}
	broken = sample[float64]{"double", [3]float64{-0.1, 1e300, 1e-300}, [3]string{"-0.1", "1.0E300", "1.0E-300"}}
)

// javaObject is a data object in Java.
type javaObject struct {
	t                   *testing.T
	j                   *java
	object, codec, name string
}

func (p *place) object(t *testing.T, object, codec, name string) javaObject {
	t.Helper()
	return javaObject{t, p.java, object, codec, name}
}

// do calls a method and returns the text of what it returned.
func (o javaObject) do(method string, args ...string) string {
	o.t.Helper()
	return o.j.must(o.t, o.words(method, args)...)
}

// all is do for what returns several values.
func (o javaObject) all(method string, args ...string) []string {
	o.t.Helper()
	return strings.Split(o.do(method, args...), ";")
}

// number is do for what returns a number.
func (o javaObject) number(method string, args ...string) float64 {
	o.t.Helper()
	n, err := strconv.ParseFloat(o.do(method, args...), 64)
	require.NoError(o.t, err)
	return n
}

func (o javaObject) words(method string, args []string) []string {
	words := []string{o.object + "." + method, o.codec, o.name}
	for _, arg := range args {
		if arg == "" {
			arg = "''"
		}
		words = append(words, arg)
	}
	return words
}

func shortest(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// kept checks that a time to live in ms is about a minute.
func kept(t *testing.T, ms float64) {
	t.Helper()
	assert.Greater(t, ms, 0.0)
	assert.LessOrEqual(t, ms, 60_000.0)
}

// got checks what a method returned that found something.
func got[T any](t *testing.T, want T) func(v T, ok bool, err error) {
	t.Helper()
	return func(v T, ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, want, v)
	}
}

// said checks what a method reported.
func said(t *testing.T, want bool) func(ok bool, err error) {
	t.Helper()
	return func(ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		assert.Equal(t, want, ok)
	}
}

func TestGridBucketIsShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { bucketIsShared(t, p, words) })
		t.Run("JSON", func(t *testing.T) { bucketIsShared(t, p, priced) })
		t.Run("integers", func(t *testing.T) { bucketIsShared(t, p, whole) })
		t.Run("floats", func(t *testing.T) { bucketIsRead(t, p, broken) })
	})
}

// bucketIsRead checks that each side reads what the other one writes.
func bucketIsRead[T any](t *testing.T, p *place, s sample[T]) {
	t.Helper()
	ctx, name := t.Context(), unused("bucket")
	b, java := rbucket.New[T](p.goSide(t).clients[0], name), p.object(t, "bucket", s.codec, name)
	_, ok, err := b.Get(ctx)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, "null", java.do("get"))
	for i, v := range s.values {
		require.NoError(t, b.Set(ctx, v))
		assert.Equal(t, s.texts[i], java.do("get"))
		_, err := b.Delete(ctx)
		require.NoError(t, err)
		java.do("set", s.texts[i])
		got(t, v)(b.Get(ctx))
	}
}

func bucketIsShared[T any](t *testing.T, p *place, s sample[T]) {
	t.Helper()
	bucketIsRead(t, p, s)
	ctx, name := t.Context(), unused("bucket")
	b, java := rbucket.New[T](p.goSide(t).clients[0], name), p.object(t, "bucket", s.codec, name)
	v, text := s.values, s.texts

	said(t, true)(b.SetIfAbsent(ctx, v[0]))
	assert.Equal(t, "false", java.do("setIfAbsent", text[1]))
	assert.Equal(t, "true", java.do("setIfExists", text[1]))
	said(t, true)(b.SetIfPresent(ctx, v[0]))
	assert.Equal(t, text[0], java.do("getAndSet", text[1]))
	got(t, v[1])(b.Swap(ctx, v[2]))
	assert.Equal(t, "false", java.do("compareAndSet", text[0], text[1]))
	assert.Equal(t, "true", java.do("compareAndSet", text[2], text[1]))
	said(t, false)(b.CompareAndSwap(ctx, v[0], v[2]))
	said(t, true)(b.CompareAndSwap(ctx, v[1], v[2]))
	assert.Equal(t, text[2], java.do("getAndDelete"))
	said(t, false)(b.SetIfPresent(ctx, v[0]))
	assert.Equal(t, "true", java.do("setIfAbsent", text[0]))
	got(t, v[0])(b.Pop(ctx))

	require.NoError(t, b.Set(ctx, v[0], rbucket.WithTTL(time.Minute)))
	said(t, true)(b.CompareAndSwap(ctx, v[0], v[1]))
	kept(t, java.number("remainTimeToLive"))
	java.do("setAndKeepTTL", text[2])
	ttl, err := b.TTL(ctx)
	require.NoError(t, err)
	kept(t, float64(ttl.Milliseconds()))
	require.NoError(t, b.Set(ctx, v[0]))
	assert.InDelta(t, -1, java.number("remainTimeToLive"), 0)
	java.do("set", text[1], "60000")
	require.NoError(t, b.Set(ctx, v[2], rbucket.KeepTTL()))
	kept(t, java.number("remainTimeToLive"))
	assert.Equal(t, "true", java.do("compareAndSet", text[2], text[0]))
	ttl, err = b.TTL(ctx)
	require.NoError(t, err)
	assert.Negative(t, ttl, "unlike Go, Java removes it")
}

func TestGridNumbersAreShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx, name := t.Context(), unused("long")
		n, java := ratomic.NewInt64(p.goSide(t).clients[0], name), p.object(t, "long", "-", name)
		is := func(want int64) {
			t.Helper()
			v, err := n.Load(ctx)
			require.NoError(t, err)
			assert.Equal(t, want, v)
			assert.Equal(t, strconv.FormatInt(want, 10), java.do("get"))
		}
		is(0)
		assert.Equal(t, "true", java.do("compareAndSet", "0", "5"))
		said(t, true)(n.CompareAndSwap(ctx, 5, 1<<53+1))
		is(1<<53 + 1)
		assert.Equal(t, "false", java.do("compareAndSet", "9007199254740992", "1"))
		said(t, false)(n.CompareAndSwap(ctx, 1<<53, 1))
		assert.Equal(t, "9007199254740994", java.do("incrementAndGet"))
		v, err := n.Add(ctx, -4)
		require.NoError(t, err)
		assert.Equal(t, int64(1<<53-2), v)
		assert.Equal(t, "9007199254740990", java.do("getAndSet", "-9223372036854775808"))
		is(math.MinInt64)
		v, err = n.Swap(ctx, 7)
		require.NoError(t, err)
		assert.Equal(t, int64(math.MinInt64), v)
		assert.Equal(t, "true", java.do("setIfGreater", "6", "8"))
		said(t, true)(n.StoreIfGreater(ctx, 9))
		assert.Equal(t, "10", java.do("addAndGet", "1"))
		is(10)
	})
}

func TestGridFloatsAreShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx, name := t.Context(), unused("double")
		n, java := ratomic.NewFloat64(p.goSide(t).clients[0], name), p.object(t, "float", "-", name)
		is := func(want float64) {
			t.Helper()
			v, err := n.Load(ctx)
			require.NoError(t, err)
			assert.InDelta(t, want, v, 0)
			assert.InDelta(t, want, java.number("get"), 0)
		}
		is(0)
		for _, v := range []float64{3, -0.1, 1e21, 1e300, 1e-300, math.MaxFloat64, math.SmallestNonzeroFloat64} {
			require.NoError(t, n.Store(ctx, v))
			is(v)
			assert.Equal(t, "true", java.do("compareAndSet", shortest(v), "1"), "%v of Go", v)
			java.do("set", shortest(v))
			is(v)
			said(t, true)(n.CompareAndSwap(ctx, v, 1))
		}
		assert.InDelta(t, 1.5, java.number("addAndGet", "0.5"), 0)
		v, err := n.Add(ctx, 0.1)
		require.NoError(t, err)
		assert.InDelta(t, 1.6, v, 0)
		assert.InDelta(t, 1.6, java.number("getAndSet", "2"), 0)
		v, err = n.Swap(ctx, 4)
		require.NoError(t, err)
		assert.InDelta(t, 2, v, 0)
		is(4)
	})
}

// gathered returns what an iteration yields.
func gathered[T any](t *testing.T, all func(yield func(T, error) bool)) (list []T) {
	t.Helper()
	for v, err := range all {
		require.NoError(t, err)
		list = append(list, v)
	}
	return list
}
