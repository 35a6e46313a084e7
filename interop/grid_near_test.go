package interop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// nearMap is a map of texts with a near cache.
type nearMap struct {
	cache         *near.Cache[string, string]
	core          *core.Core
	name, channel string
}

func openNear(t *testing.T, p *place, name string) *nearMap {
	t.Helper()
	c, topic := core.Of(p.goSide(t).clients[0]), near.MapTopic(name)
	m := &nearMap{near.New[string](c, topic, near.Options[string]{Entries: 100, MaxStale: time.Hour}), c, name, topic.Channel}
	m.cache.Get("")
	redistest.Eventually(t, limit, "the subscription", func() error {
		if m.cache.Ask(nil) == (near.Ticket{}) {
			return errors.New("not confirmed")
		}
		return nil
	})
	return m
}

// Each script publishes in the step that writes.
var (
	nearSet    = script.New("test.set", `redis.call('hset', KEYS[1], ARGV[2], ARGV[3]) redis.call('publish', KEYS[2], ARGV[1]) return 1`)
	nearRemove = script.New("test.remove", `redis.call('hdel', KEYS[1], ARGV[2]) redis.call('publish', KEYS[2], ARGV[1]) return 1`)
	nearClear  = script.New("test.clear", `redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1]) return 1`)
	nearGet    = script.Command("hget")
)

func (m *nearMap) write(t *testing.T, s *script.Script, w *near.Write, args ...any) {
	t.Helper()
	_, err := m.core.Once(t.Context(), func() *script.Call {
		return s.Call(2, append([]any{m.name, m.channel, w.Message()}, args...)...)
	})
	require.NoError(t, err)
	w.Answered()
}

func (m *nearMap) set(t *testing.T, key, value string) {
	t.Helper()
	m.write(t, nearSet, m.cache.Write([]byte(key)), key, value)
}

func (m *nearMap) remove(t *testing.T, key string) {
	t.Helper()
	m.write(t, nearRemove, m.cache.Write([]byte(key)), key)
}

func (m *nearMap) clear(t *testing.T) {
	t.Helper()
	m.write(t, nearClear, m.cache.Clear())
}

// get returns the value of a key, "" for none, and whether it was near.
func (m *nearMap) get(t *testing.T, key string) (value string, hit bool) {
	t.Helper()
	if value, ok := m.cache.Get(key); ok {
		return value, true
	}
	ticket := m.cache.Ask([]byte(key))
	call, err := m.core.Read(t.Context(), func() *script.Call { return nearGet.Call(1, m.name, key) })
	if err != nil {
		return "", false
	}
	value, err = call.Text()
	require.NoError(t, err)
	m.cache.Store(key, value, nil, 0, ticket)
	return value, false
}

// keeps reads a key and checks that it is near from then on.
func (m *nearMap) keeps(t *testing.T, key, want string) {
	t.Helper()
	redistest.Eventually(t, limit, "near entry of "+key, func() error {
		if value, hit := m.get(t, key); !hit || value != want {
			return fmt.Errorf("it has %q, near: %v", value, hit)
		}
		return nil
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
		t.Run("invalidating", func(t *testing.T) { hearEachOther(t, p, "text") })
		t.Run("updating", func(t *testing.T) { hearEachOther(t, p, "update") })
	})
}

func hearEachOther(t *testing.T, p *place, codec string) {
	t.Helper()
	name := unused("near")
	m, java := openNear(t, p, name), p.object(t, "near", codec, name)
	java.do("open")
	p.awaitSubscribers(t, 2, m.channel)
	const key = "grün"
	ended := uint64(0)
	java.do("put", key, "a")
	for _, change := range []struct {
		java []string
		want string
		keys uint64 // that the message is about
	}{
		{[]string{"put", key, "b"}, "b", 1},
		{[]string{"fastPut", key, "c"}, "c", 1},
		{[]string{"replace", key, "c", "d"}, "d", 1},
		{[]string{"putAll", key, "e", "2", "x", "3", "y"}, "e", 3},
		{[]string{"fastRemove", key, "2"}, "", 2},
		{[]string{"fastPutIfAbsent", key, "f"}, "f", 1},
		{[]string{"remove", key}, "", 1},
	} {
		value, _ := m.get(t, key)
		before := m.cache.Stats().Invalidations
		java.do(change.java[0], change.java[1:]...)
		redistest.Eventually(t, limit, "end of the entry", func() error {
			if got, _ := m.get(t, key); got != change.want {
				return fmt.Errorf("%v: it has %q, of %q", change.java, got, value)
			}
			return nil
		})
		assert.LessOrEqual(t, m.cache.Stats().Invalidations-before, change.keys, change.java)
		ended += change.keys
	}
	redistest.Eventually(t, limit, "count of messages", func() error {
		if got := m.cache.Stats().Invalidations; got != ended+1 {
			return fmt.Errorf("%d, not %d", got, ended+1)
		}
		return nil
	})

	for _, value := range []string{"g", "h"} {
		m.set(t, key, value)
		javaLoses(t, java, key)
		javaKeeps(t, java, key, value)
	}
	m.remove(t, key)
	javaLoses(t, java, key)
	assert.Equal(t, "null", java.do("get", key))
	m.set(t, key, "i")
	javaKeeps(t, java, key, "i")
	m.clear(t)
	javaLoses(t, java, key)
}

func TestGridClearOfJavaWaitsForNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		name := unused("near")
		m, other := openNear(t, p, name), openNear(t, p, name)
		java := p.object(t, "near", "text", name)
		second := java
		second.j = sharedJava(t, 2, p.version, p.cluster, p.addrs)
		java.do("open")
		second.do("open")
		p.awaitSubscribers(t, 4, m.channel)
		for _, clear := range []string{"clear", "clearLocalCache", "clearLocalCache"} {
			java.do("put", "k", "old")
			m.keeps(t, "k", "old")
			other.keeps(t, "k", "old")
			javaKeeps(t, second, "k", "old")
			begun := time.Now()
			java.do(clear)
			assert.Less(t, time.Since(begun), limit/2, "not its time-out of 40 s")
			javaLoses(t, second, "k")
			for _, n := range []*nearMap{m, other} {
				redistest.Eventually(t, limit, "end of the entry", func() error {
					_, kept := n.cache.Get("k")
					return ended(!kept)
				})
			}
		}
	})
}

func TestGridTransactionOfJavaWaitsForNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if p.cluster {
			t.Skip("skipped: there Redisson announces transactions on plain channels, which not even its own near caches listen to")
		}
		name := unused("near")
		m, other := openNear(t, p, name), openNear(t, p, name)
		java := p.object(t, "near", "text", name)
		second := java
		second.j = sharedJava(t, 2, p.version, p.cluster, p.addrs)
		java.do("open")
		second.do("open")
		p.awaitSubscribers(t, 4, m.channel)
		java.do("put", "k", "0")
		for _, value := range []string{"1", "2", "3"} {
			m.get(t, "k")
			other.get(t, "k")
			begun := time.Now()
			java.do("transaction", "k", value, "l", value)
			assert.Less(t, time.Since(begun), 3*time.Second, "its time-out")
			for _, n := range []*nearMap{m, other} {
				n.keeps(t, "k", value)
				n.keeps(t, "l", value)
			}
			javaKeeps(t, second, "k", value)
		}
	})
}
