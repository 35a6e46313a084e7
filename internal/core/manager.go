package core

import (
	"reflect"
	"sync"
)

// managers are the client's managers by type. Each is made when the first object that needs it is asked for, so a program that
// uses no queues, for example, links none of their code.
type managers struct {
	made  sync.Map   // reflect.Type -> the manager
	mu    sync.Mutex // held while one is made; guards first
	first bool       // one has been made
}

// Manager returns the client's one manager of type T: what it knows of all objects of a kind. The first call makes it.
func Manager[T any](c *Core, make func(*Core) T) T {
	key := reflect.TypeFor[T]()
	if m, ok := c.managers.made.Load(key); ok {
		return m.(T)
	}
	c.managers.mu.Lock()
	defer c.managers.mu.Unlock()
	if m, ok := c.managers.made.Load(key); ok {
		return m.(T)
	}
	if !c.managers.first {
		c.managers.first = true
		c.presence.begin(c)
	}
	m := make(c)
	c.managers.made.Store(key, m)
	return m
}
