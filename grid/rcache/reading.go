package rcache

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// stall is how long calls wait for a read that began before they did.
const stall = 100 * time.Millisecond

// readings has calls for one key that come while Redis is asked for it share the next read. That begins after all of them, so that each
// gets what Redis had when it was called, or later. It is safe for concurrent use.
type readings struct {
	mu   sync.Mutex // guards what follows
	keys map[string]*turns
}

// turns are the reads of a key.
type turns struct {
	flying int
	next   *reading // nil if nobody waits for it
}

// reading is a read for all who came before it began.
type reading struct {
	ctx   context.Context //nolint:containedctx // of the first of them, without its end
	begin *time.Timer     // if those before it take long
	done  chan struct{}   // closed when it has ended
	found found           // set before done is closed, as what follows
	ok    bool
	err   error
}

// join returns the next read of a key; nil if none is under way, and the caller is to read.
func (c *Cache[K, V]) join(ctx context.Context, p place) *reading {
	c.readings.mu.Lock()
	defer c.readings.mu.Unlock()
	t := c.readings.keys[p.key]
	if t == nil {
		c.readings.keys[p.key] = &turns{flying: 1}
		return nil
	}
	if t.next == nil {
		r := &reading{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		r.begin = time.AfterFunc(stall, func() { c.overdue(p, r) })
		t.next = r
	}
	return t.next
}

// leave ends a read, and begins the next one if somebody waits for it.
func (c *Cache[K, V]) leave(p place) {
	c.readings.mu.Lock()
	defer c.readings.mu.Unlock()
	t := c.readings.keys[p.key]
	if t.flying--; t.next != nil {
		c.beginLocked(p, t)
	} else if t.flying == 0 {
		delete(c.readings.keys, p.key)
	}
}

func (c *Cache[K, V]) overdue(p place, r *reading) {
	c.readings.mu.Lock()
	defer c.readings.mu.Unlock()
	if t := c.readings.keys[p.key]; t != nil && t.next == r {
		c.beginLocked(p, t)
	}
}

// beginLocked begins the read that calls wait for.
func (c *Cache[K, V]) beginLocked(p place, t *turns) {
	r := t.next
	t.next = nil
	t.flying++
	r.begin.Stop()
	c.manager.loads.Go(func() { // ends with the read; Wait waits for it
		defer c.leave(p)
		defer close(r.done)
		r.found, r.ok, r.err = c.ask(r.ctx, p)
	})
}

// read asks Redis for what is kept, or waits for a read that begins later.
func (c *Cache[K, V]) read(ctx context.Context, p place) (f found, ok bool, err error) {
	if err := c.core.Ready(ctx); err != nil {
		return f, false, err
	}
	r := c.join(ctx, p)
	if r == nil {
		defer c.leave(p)
		return c.ask(ctx, p)
	}
	select {
	case <-r.done:
		return r.found, r.ok, r.err
	case <-ctx.Done():
		return f, false, core.Conclude(ctx, script.NotDone, ctx.Err())
	case <-c.core.Closing():
		return f, false, errs.ErrClosed
	}
}

// ask asks Redis.
func (c *Cache[K, V]) ask(ctx context.Context, p place) (f found, ok bool, err error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	call, err := c.core.Read(ctx, func() *script.Call { return read(p.key) })
	if err != nil {
		return f, false, err
	}
	return readFound(call)
}

// bound returns ctx for a question to Redis, to which a cache that fails open does not wait for the answer for long.
func (c *Cache[K, V]) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.opts.failOpen {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, patience, script.ErrNoAnswer)
}
