package core

import (
	"hash/maphash"
	"sync"
)

// shards is how many mutexes share the names of a table.
const shards = 64

// Table is a map from the names that are in use just now, for many goroutines at a time. It is safe for concurrent use.
type Table[T any] struct {
	seed   maphash.Seed
	shards [shards]Shard[T]
}

// Shard is the part of a table that some of the names fall into.
type Shard[T any] struct {
	sync.Mutex              // guards Of, and what its user likes
	Of         map[string]T // by name
}

// NewTable returns an empty table.
func NewTable[T any]() *Table[T] {
	t := &Table[T]{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].Of = map[string]T{}
	}
	return t
}

// Shard returns the shard that a name falls into.
func (t *Table[T]) Shard(name string) *Shard[T] {
	return &t.shards[maphash.String(t.seed, name)%shards]
}

// Each calls fn with all there is, under the mutexes.
func (t *Table[T]) Each(fn func(T)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for _, v := range s.Of {
			fn(v)
		}
		s.Unlock()
	}
}

// Len returns how many names there are.
func (t *Table[T]) Len() int {
	n := 0
	t.Each(func(T) { n++ })
	return n
}
