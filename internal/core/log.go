package core

import (
	"sync"
	"sync/atomic"
	"time"
)

// Lost says that something ended although nobody released it: what it is, in a noun, of which kind, under which name and owner id, and
// why.
func (c *Core) Lost(noun, kind, name, owner string, cause error) {
	c.Logger.Warn("redlatch: a "+noun+" was lost", "kind", kind, "name", name, "owner", owner, "cause", cause)
	if f := c.Hooks.Lost; f != nil {
		f(kind, name, cause)
	}
}

// DeadLetter says that a message has become one.
func (c *Core) DeadLetter(kind, queue, id string, attempt int, cause string) {
	c.Logger.Warn("redlatch: a message became a dead letter",
		"kind", kind, "name", queue, "id", id, "attempt", attempt, "cause", cause)
}

// selfWait is how long a call waits for a hold of its own client until that is logged.
const selfWait = 5 * time.Second

// WaitsForItself reports whether a call that began to wait at one time for a hold of its own client of another time is to be logged.
func WaitsForItself(now, waits, held time.Duration) bool {
	return waits > 0 && now-max(waits, held) >= selfWait
}

// SelfWait says that a call of this client waits for a hold of this client.
func (c *Core) SelfWait(kind, name, owner string, waited time.Duration) {
	c.Logger.Warn("redlatch: a call waits for a lock that this client holds; only a call under the hold's context nests",
		"kind", kind, "name", name, "owner", owner, "waited", waited)
}

// slow adds the lines of a slow log to what is observed.
func (c *Core) slow() {
	if limit, then := c.SlowWait, c.Hooks.Acquired; limit > 0 {
		c.Hooks.Acquired = func(kind, name string, waited time.Duration) {
			if waited >= limit {
				c.Logger.Warn("redlatch: a call waited long", "kind", kind, "name", name, "waited", waited)
			}
			if then != nil {
				then(kind, name, waited)
			}
		}
	}
	if limit, then := c.SlowHold, c.Hooks.Released; limit > 0 {
		c.Hooks.Released = func(kind, name string, held time.Duration) {
			if held >= limit {
				c.Logger.Warn("redlatch: a hold lasted long", "kind", kind, "name", name, "held", held)
			}
			if then != nil {
				then(kind, name, held)
			}
		}
	}
}

// outages are the nodes on which renewals fail. Their first failure is logged, and the first success after it.
type outages struct {
	open  atomic.Int32 // nodes in the map
	mu    sync.Mutex   // guards the map
	since map[string]time.Duration
}

// Renewed says what came of a call that renewed leases or messages, among them that of the key: how many were renewed and how many
// were lost.
func (c *Core) Renewed(key string, renewed, lost int, err error) {
	o := &c.outages
	switch {
	case err != nil:
		node := c.Batch.Node(key)
		if o.begins(node, c.Clock.Now()) {
			c.Logger.Warn("redlatch: renewals fail", "node", node, "cause", err)
		}
		renewed, lost = 0, 0
	case o.open.Load() > 0:
		node := c.Batch.Node(key)
		if since, ended := o.ended(node); ended {
			c.Logger.Info("redlatch: renewals succeed again", "node", node, "length", c.Clock.Now()-since)
		}
	}
	if f := c.Hooks.Renewed; f != nil {
		f(renewed, lost, err)
	}
}

// begins notes that a renewal failed, and reports whether it is the first one.
func (o *outages) begins(node string, now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.since[node]; known {
		return false
	}
	if o.since == nil {
		o.since = map[string]time.Duration{}
	}
	o.since[node] = now
	o.open.Add(1)
	return true
}

// ended notes that a renewal succeeded, and returns since when they had failed, if they had.
func (o *outages) ended(node string) (since time.Duration, was bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if since, was = o.since[node]; was {
		delete(o.since, node)
		o.open.Add(-1)
	}
	return since, was
}
