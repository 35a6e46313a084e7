// Package names keeps what a client knows of the names that are in use just now.
package names

import (
	"hash/maphash"
	"sync"
)

// parts is how many mutexes share the names.
const parts = 64

// Table is a map from names that many goroutines use at a time. It is safe for concurrent use.
type Table[T any] struct {
	seed  maphash.Seed
	parts [parts]Part[T]
}

// Part is the part of a table that some of the names fall into.
type Part[T any] struct {
	sync.Mutex              // guards Of, and what its user likes
	Of         map[string]T // by name
}

// New returns an empty table.
func New[T any]() *Table[T] {
	t := &Table[T]{seed: maphash.MakeSeed()}
	for i := range t.parts {
		t.parts[i].Of = map[string]T{}
	}
	return t
}

// Part returns the part of the table that a name falls into.
func (t *Table[T]) Part(name string) *Part[T] {
	return &t.parts[maphash.String(t.seed, name)%parts]
}

// Each calls fn with all there is, under the mutexes.
func (t *Table[T]) Each(fn func(T)) {
	for i := range t.parts {
		p := &t.parts[i]
		p.Lock()
		for _, v := range p.Of {
			fn(v)
		}
		p.Unlock()
	}
}

// Len returns how many names there are.
func (t *Table[T]) Len() int {
	n := 0
	t.Each(func(T) { n++ })
	return n
}
