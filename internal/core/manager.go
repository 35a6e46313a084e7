package core

import (
	"reflect"
	"sync"
)

// Manager returns the client's one manager of type T: what it knows of all objects of a kind. The first call makes it, so a program
// that uses no queues, for example, links none of their code.
func Manager[T any](c *Core, make func(*Core) T) T {
	key := reflect.TypeFor[T]()
	made, ok := c.managers.Load(key)
	if !ok {
		made, _ = c.managers.LoadOrStore(key, sync.OnceValue(func() T { return make(c) }))
	}
	return made.(func() T)()
}
