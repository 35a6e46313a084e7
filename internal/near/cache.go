package near

import (
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/highway"
)

// Options are the settings of a [Cache].
type Options[V any] struct {
	// Entries is how many are kept at the most. With 0 the cache keeps nothing and joins no channel, but its writes are
	// published.
	Entries int
	// MaxStale is how long an entry is served at the most, from when it was asked for.
	MaxStale time.Duration
	// Shared has all callers get the same value, which nobody may change then. It makes no difference for a type without
	// pointers, in which a string and a time.Time count as values.
	Shared bool
	// Decode decodes a value that was stored, for one caller.
	Decode func(encoded []byte) (V, error)
}

// Stats are the counts of a [Cache]. But for the entries they are those of all caches of the object in this client.
type Stats struct {
	Hits, Misses  uint64
	Invalidations uint64 // keys in messages, also those of own writes; 1 for a clear
	Entries       int    // with those that are over and were not looked at since
}

const (
	manyShards = 16
	smallCache = 1024 // entries below which a cache has one shard
)

// Cache is some entries of an object, the ones that were used last. It is safe for concurrent use. It leaves the checks of a call,
// such as that the client is open, to its caller.
type Cache[K comparable, V any] struct {
	trackers *trackers
	topic    Topic
	opts     Options[V]
	decoded  bool // values are kept decoded
	tracker  atomic.Pointer[tracker]
	seed     maphash.Seed
	shards   []shard[K, V] // a power of two; none if it keeps nothing
}

// shard is a part of the entries.
type shard[K comparable, V any] struct {
	mu  sync.Mutex // guards what follows
	lru *simplelru.LRU[K, entry[V]]
	_   [64]byte // apart from the next one's cache line
}

type entry[V any] struct {
	ticket  Ticket
	until   time.Duration // on the client's clock
	value   V             // if the cache keeps values decoded
	encoded []byte        // if not
}

// New returns a cache of the object with a topic. It does no I/O and keeps nothing alive; the first use joins the channel, and
// the object's tracker stays there until the client closes.
func New[K comparable, V any](c *core.Core, topic Topic, opts Options[V]) *Cache[K, V] {
	cache := &Cache[K, V]{trackers: trackersOf(c), topic: topic, opts: opts, decoded: opts.Shared || isPlain(reflect.TypeFor[V]())}
	if opts.Entries == 0 {
		return cache
	}
	n := 1
	if opts.Entries >= smallCache {
		n = manyShards
	}
	cache.seed, cache.shards = maphash.MakeSeed(), make([]shard[K, V], n)
	for i := range cache.shards {
		cache.shards[i].lru, _ = simplelru.NewLRU[K, entry[V]](opts.Entries/n, nil) // the error is that of a size below 1
	}
	return cache
}

// Get returns the value of a key if it is kept and not over. It allocates nothing but what decoding needs.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	if len(c.shards) == 0 {
		return value, false
	}
	t := c.tracker.Load()
	if t == nil {
		t = c.join()
	}
	now := c.trackers.core.Clock.Now()
	i := maphash.Comparable(c.seed, key) % uint64(len(c.shards))
	s, n := &c.shards[i], &t.reads[i]
	s.mu.Lock()
	e, ok := s.lru.Get(key)
	if ok && (now >= e.until || !t.valid(&e.ticket)) {
		s.lru.Remove(key)
		ok = false
	}
	s.mu.Unlock()
	if !ok {
		n.misses.Add(1)
		return value, false
	}
	n.hits.Add(1)
	if c.decoded {
		return e.value, true
	}
	value, err := c.opts.Decode(e.encoded)
	return value, err == nil
}

// Ask returns the ticket of a key, for a reply of Redis that is asked for afterwards, at the master.
func (c *Cache[K, V]) Ask(encodedKey []byte) Ticket {
	if len(c.shards) == 0 {
		return Ticket{}
	}
	t := c.tracker.Load()
	if t == nil {
		t = c.join()
	}
	return t.ticket(highway.Sum(encodedKey))
}

// Store keeps a value that Redis replied with, unless it is over by its ticket. Its time to live, if it is positive, is what Redis
// said with it. encoded belongs to the cache from then on; value does if callers share it.
func (c *Cache[K, V]) Store(key K, value V, encoded []byte, ttl time.Duration, ticket Ticket) {
	t := c.tracker.Load()
	if ticket == (Ticket{}) || !t.valid(&ticket) {
		return
	}
	e := entry[V]{ticket: ticket, until: ticket.asked + c.opts.MaxStale}
	if ttl > 0 {
		e.until = min(e.until, ticket.asked+ttl)
	}
	if c.decoded {
		e.value = value
	} else {
		e.encoded = encoded
	}
	s := &c.shards[maphash.Comparable(c.seed, key)%uint64(len(c.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lru.Add(key, e)
}

// Stats returns the current counts.
func (c *Cache[K, V]) Stats() (s Stats) {
	if t := c.trackers.find(c.topic); t != nil {
		s = t.stats()
	}
	s.Entries = c.entries()
	return s
}

func (c *Cache[K, V]) entries() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.lru.Len()
		s.mu.Unlock()
	}
	return n
}

// join joins the channel. The tracker knows the cache from then on, and does not keep it alive.
func (c *Cache[K, V]) join() *tracker {
	t := c.trackers.join(c.topic, c.opts.Entries)
	if c.tracker.CompareAndSwap(nil, t) {
		alive, maxStale := weak.Make(c), c.opts.MaxStale
		t.know(func() (kept, bool) {
			c := alive.Value()
			if c == nil {
				return kept{}, false
			}
			return kept{c.entries(), maxStale}, true
		})
	}
	return t
}

// isPlain reports whether values of a type have nothing that two holders of a copy could change for each other.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return true
		}
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.UnsafePointer:
		return false
	}
	return true // booleans, numbers, strings
}
