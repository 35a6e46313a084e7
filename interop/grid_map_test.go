package interop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestGridMapIsShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { mapIsShared(t, p, words) })
		t.Run("JSON", func(t *testing.T) { mapIsShared(t, p, priced) })
		t.Run("integers", func(t *testing.T) { mapIsShared(t, p, whole) })
	})
}

func mapIsShared[V any](t *testing.T, p *place, s sample[V]) {
	t.Helper()
	ctx, name := t.Context(), unused("map")
	m, java := rmap.New[string, V](p.goSide(t).clients[0], name), p.object(t, "map", s.codec, name)
	v, text := s.values, s.texts
	const a, b, c = "a", "grün/ü", "{c}"

	_, ok, err := m.Get(ctx, a)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, "null", java.do("get", a))
	require.NoError(t, m.Set(ctx, a, v[0]))
	assert.Equal(t, text[0], java.do("put", a, text[1]))
	assert.Equal(t, "true", java.do("fastPut", b, text[2]))
	require.NoError(t, m.SetAll(ctx, map[string]V{c: v[2]}))
	all, err := m.GetAll(ctx, []string{a, b, c, "d"})
	require.NoError(t, err)
	assert.Equal(t, map[string]V{a: v[1], b: v[2], c: v[2]}, all)
	assert.ElementsMatch(t, []string{a + "=" + text[1], c + "=" + text[2]}, java.all("getAll", a, c, "d"))
	assert.ElementsMatch(t, []string{a + "=" + text[1], b + "=" + text[2], c + "=" + text[2]}, java.all("all"))
	assert.ElementsMatch(t, []rmap.Entry[string, V]{{Key: a, Value: v[1]}, {Key: b, Value: v[2]}, {Key: c, Value: v[2]}}, gathered(t, m.All(ctx)))
	assert.Equal(t, "3", java.do("size"))

	assert.Equal(t, text[1], java.do("putIfAbsent", a, text[2]))
	assert.Equal(t, "false", java.do("fastPutIfAbsent", a, text[2]))
	said(t, false)(m.SetIfAbsent(ctx, a, v[2]))
	said(t, true)(m.SetIfPresent(ctx, a, v[0]))
	assert.Equal(t, text[0], java.do("putIfExists", a, text[1]))
	got(t, v[1])(m.Swap(ctx, a, v[2]))
	assert.Equal(t, "false", java.do("replace", a, text[0], text[1]))
	assert.Equal(t, "true", java.do("replace", a, text[2], text[1]))
	said(t, false)(m.CompareAndSwap(ctx, a, v[0], v[2]))
	said(t, true)(m.CompareAndSwap(ctx, a, v[1], v[2]))
	assert.Equal(t, text[2], java.do("replace", a, text[0]))
	assert.Equal(t, "false", java.do("remove", a, text[1]))
	said(t, false)(m.CompareAndDelete(ctx, a, v[1]))
	assert.Equal(t, "true", java.do("remove", a, text[0]))
	said(t, false)(m.Has(ctx, a))
	require.NoError(t, m.Set(ctx, a, v[1]))
	assert.Equal(t, "true", java.do("containsKey", a))
	said(t, true)(m.CompareAndDelete(ctx, a, v[1]))
	assert.Equal(t, "null", java.do("remove", a))

	assert.Equal(t, text[2], java.do("remove", c))
	got(t, v[2])(m.Pop(ctx, b))
	require.NoError(t, m.SetAll(ctx, map[string]V{a: v[0], b: v[1], c: v[2]}))
	assert.Equal(t, "1", java.do("fastRemove", a, "d"))
	n, err := m.Remove(ctx, b, "d")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	java.do("clear")
	n, err = m.Len(ctx)
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestGridNumbersOfAMapAreShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx, name, client := t.Context(), unused("map"), p.goSide(t).clients[0]
		m, java := rmap.New[string, int64](client, name), p.object(t, "map", "long", name)
		assert.Equal(t, "9007199254740993", java.do("addAndGet", "n", "9007199254740993"))
		v, err := m.Add(ctx, "n", 1)
		require.NoError(t, err)
		assert.Equal(t, int64(1<<53+2), v)
		assert.Equal(t, "9007199254740993", java.do("addAndGet", "n", "-1"))

		floats, java := rmap.New[string, float64](client, name+"f"), p.object(t, "map", "double", name+"f")
		assert.InDelta(t, 0.5, java.number("addAndGet", "x", "0.5"), 0)
		x, err := floats.Add(ctx, "x", 0.1)
		require.NoError(t, err)
		assert.InDelta(t, 0.6, x, 0)
		assert.InDelta(t, 3.6, java.number("addAndGet", "x", "3"), 0)
	})
}

// Both sides iterate over more than one step of a scan.
func TestGridMapOfManyEntriesIsIterated(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx, name := t.Context(), unused("map")
		m, java := rmap.New[string, int64](p.goSide(t).clients[0], name), p.object(t, "map", "long", name)
		values := map[string]int64{}
		for i := range int64(2000) {
			values[fmt.Sprintf("key-%d", i)] = i
		}
		require.NoError(t, m.SetAll(ctx, values))
		seen := map[string]bool{}
		for _, entry := range java.all("all") {
			seen[entry] = true
		}
		for k, v := range values {
			assert.Contains(t, seen, fmt.Sprintf("%s=%d", k, v))
		}
		read := map[string]int64{}
		for _, e := range gathered(t, m.All(ctx)) {
			read[e.Key] = e.Value
		}
		assert.Equal(t, values, read)
	})
}

func TestGridTimesOfEntriesAreShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { entriesExpire(t, p, words) })
		t.Run("JSON", func(t *testing.T) { entriesExpire(t, p, priced) })
	})
}

func entriesExpire[V any](t *testing.T, p *place, s sample[V]) {
	t.Helper()
	ctx, name := t.Context(), unused("map")
	m, java := rmap.New[string, V](p.goSide(t).clients[0], name), p.object(t, "native", s.codec, name)
	err := m.Set(ctx, "k", s.values[0], rmap.WithTTL(time.Minute))
	if errors.Is(err, redlatch.ErrUnsupported) {
		t.Skip("skipped: entries have times from Redis 7.4 and Valkey 9 on")
	}
	require.NoError(t, err)
	lives := func() {
		t.Helper()
		ttl, ok, err := m.EntryTTL(ctx, "k")
		require.NoError(t, err)
		assert.True(t, ok)
		kept(t, float64(ttl.Milliseconds()))
		kept(t, java.number("remainTimeToLive", "k"))
	}
	stays := func() {
		t.Helper()
		ttl, ok, err := m.EntryTTL(ctx, "k")
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Negative(t, ttl)
		assert.InDelta(t, -1, java.number("remainTimeToLive", "k"), 0)
	}
	lives()
	assert.Equal(t, "true", java.do("clearExpire", "k"))
	stays()
	assert.Equal(t, "true", java.do("expireEntry", "k", "60000"))
	lives()
	said(t, true)(m.CompareAndSwap(ctx, "k", s.values[0], s.values[1]))
	lives()
	java.do("fastPut", "k", s.texts[2])
	stays()
	said(t, true)(m.ExpireEntry(ctx, "k", time.Minute))
	lives()
	require.NoError(t, m.Set(ctx, "k", s.values[0]))
	stays()
	assert.Equal(t, s.texts[0], java.do("putFor", "k", s.texts[1], "60000"))
	lives()
	got(t, s.values[1])(m.Get(ctx, "k"))

	// An entry that is over is there for neither side.
	require.NoError(t, m.Set(ctx, "go", s.values[0], rmap.WithTTL(time.Millisecond)))
	java.do("fastPutFor", "java", s.texts[0], "1")
	redistest.Eventually(t, limit, "end of the entry of Java", func() error {
		ok, err := m.Has(ctx, "java")
		require.NoError(t, err)
		return ended(!ok)
	})
	redistest.Eventually(t, limit, "end of the entry of Go", func() error { return ended(java.do("containsKey", "go") == "false") })
	assert.Equal(t, "null", java.do("get", "go"))
	assert.Equal(t, []string{"k=" + s.texts[1]}, java.all("all"))
}
