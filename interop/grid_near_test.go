package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// nearMap is a map with a near cache.
type nearMap[V any] struct{ *rmap.Map[string, V] }

// openNear returns the map of a client of its own, which has joined the map's channel.
func openNear[V any](t *testing.T, p *place, name string) nearMap[V] {
	t.Helper()
	m := nearMap[V]{rmap.New[string, V](p.goSide(t).clients[0], name, rmap.WithNear(100), rmap.WithMaxStale(time.Hour))}
	m.get(t, "")
	return m
}

// channelOf is that of a map's near caches.
func channelOf(name string) string { return "{" + name + "}:topic" }

// get returns the value of a key, whether there is one, and whether it was near.
func (m nearMap[V]) get(t *testing.T, key string) (value V, ok, hit bool) {
	t.Helper()
	before := m.NearStats().Hits
	value, ok, err := m.Get(t.Context(), key)
	require.NoError(t, err)
	return value, ok, m.NearStats().Hits > before
}

// keeps reads a key until it is near with this value.
func (m nearMap[V]) keeps(t *testing.T, key string, want V) {
	t.Helper()
	redistest.Eventually(t, limit, "near entry of "+key, func() error {
		if value, _, hit := m.get(t, key); !hit || !assert.ObjectsAreEqual(want, value) {
			return fmt.Errorf("it has %v, near: %v", value, hit)
		}
		return nil
	})
}

// loses waits until a key that was near is not.
func (m nearMap[V]) loses(t *testing.T, key string) {
	t.Helper()
	redistest.Eventually(t, limit, "end of the entry of "+key, func() error {
		_, _, hit := m.get(t, key)
		return ended(!hit)
	})
}

// javaKeeps reads a key in Java and checks that it is near from then on.
func javaKeeps(t *testing.T, java javaObject, key, want string) {
	t.Helper()
	redistest.Eventually(t, limit, "near entry of Java", func() error {
		if read, cached := java.do("get", key), java.do("cached", key); read != want || cached != want {
			return fmt.Errorf("it reads %q and has %q", read, cached)
		}
		return nil
	})
}

// javaLoses waits until Java has no near entry of a key.
func javaLoses(t *testing.T, java javaObject, key string) {
	t.Helper()
	redistest.Eventually(t, limit, "end of the entry of Java", func() error { return ended(java.do("cached", key) == "null") })
}

func TestGridNearCachesHearEachOther(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { hearEachOther(t, p, words) })
		t.Run("JSON", func(t *testing.T) { hearEachOther(t, p, priced) })
		t.Run("updating", func(t *testing.T) {
			updating := words
			updating.codec = "update"
			hearEachOther(t, p, updating)
		})
	})
}

func hearEachOther[V any](t *testing.T, p *place, s sample[V]) {
	t.Helper()
	ctx, name := t.Context(), unused("near")
	m, java := openNear[V](t, p, name), p.object(t, "near", s.codec, name)
	java.do("open")
	p.awaitSubscribers(t, 2, channelOf(name))
	const key = "grün"
	v, text := s.values, s.texts

	java.do("put", key, text[0])
	m.keeps(t, key, v[0])
	java.do("put", key, text[1])
	m.keeps(t, key, v[1])
	java.do("fastPut", key, text[2])
	m.keeps(t, key, v[2])
	java.do("replace", key, text[2], text[0])
	m.keeps(t, key, v[0])
	java.do("putAll", key, text[1], "b", text[0], "c", text[2])
	m.keeps(t, key, v[1])
	java.do("fastRemove", key, "b")
	m.loses(t, key)
	java.do("fastPutIfAbsent", key, text[2])
	m.keeps(t, key, v[2])
	java.do("remove", key)
	m.loses(t, key)
	assert.LessOrEqual(t, m.NearStats().Invalidations, uint64(11), "no message was about more than its keys")

	require.NoError(t, m.Set(ctx, key, v[0]))
	javaKeeps(t, java, key, text[0])
	said(t, true)(m.CompareAndSwap(ctx, key, v[0], v[1]))
	javaLoses(t, java, key)
	javaKeeps(t, java, key, text[1])
	got(t, v[1])(m.Swap(ctx, key, v[2]))
	javaLoses(t, java, key)
	javaKeeps(t, java, key, text[2])
	require.NoError(t, m.SetAll(ctx, map[string]V{key: v[0], "b": v[1]}))
	javaLoses(t, java, key)
	javaKeeps(t, java, key, text[0])
	_, err := m.Remove(ctx, key, "b")
	require.NoError(t, err)
	javaLoses(t, java, key)
	assert.Equal(t, "null", java.do("get", key))
	require.NoError(t, m.Set(ctx, key, v[1]))
	javaKeeps(t, java, key, text[1])
	said(t, true)(m.Delete(ctx))
	javaLoses(t, java, key)
}

func TestGridClearOfJavaWaitsForNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		name := unused("near")
		m, other := openNear[string](t, p, name), openNear[string](t, p, name)
		java, second := p.nearInJava(t, name)
		for _, clear := range []string{"clear", "clearLocalCache", "clearLocalCache"} {
			java.do("put", "k", "old")
			m.keeps(t, "k", "old")
			other.keeps(t, "k", "old")
			javaKeeps(t, second, "k", "old")
			begun := time.Now()
			java.do(clear)
			assert.Less(t, time.Since(begun), limit/2, "its time-out is 40 s")
			m.loses(t, "k")
			other.loses(t, "k")
			javaLoses(t, second, "k")
		}
	})
}

func TestGridTransactionOfJavaWaitsForNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if p.cluster {
			t.Skip("skipped: there Redisson announces transactions on plain channels, which not even its own near caches listen to")
		}
		name := unused("near")
		m, other := openNear[string](t, p, name), openNear[string](t, p, name)
		java, second := p.nearInJava(t, name)
		java.do("put", "k", "0")
		for _, value := range []string{"1", "2", "3"} {
			m.get(t, "k")
			other.get(t, "k")
			java.do("transaction", "k", value, "l", value) // fails after 3 s without an answer of each
			for _, n := range []nearMap[string]{m, other} {
				n.keeps(t, "k", value)
				n.keeps(t, "l", value)
			}
			javaKeeps(t, second, "k", value)
		}
	})
}

// nearInJava returns a map of texts with near caches in two processes, which listen as two of Go do.
func (p *place) nearInJava(t *testing.T, name string) (first, second javaObject) {
	t.Helper()
	first = p.object(t, "near", "text", name)
	second = first
	second.j = sharedJava(t, 2, p.version, p.cluster, p.addrs)
	first.do("open")
	second.do("open")
	p.awaitSubscribers(t, 4, channelOf(name))
	return first, second
}
