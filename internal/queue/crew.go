package queue

import (
	"context"
	"sync"
)

// crew counts goroutines that come and go, and can wait for an instant without any. A sync.WaitGroup may not be added to
// while somebody waits for it.
type crew struct {
	mu   sync.Mutex // guards all below
	n    int
	gone chan struct{} // closed when n falls to 0; nil while nobody waits
}

// Go runs fn on a goroutine that Wait waits for.
func (c *crew) Go(fn func()) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	go func() { // its owner says what ends fn
		defer c.leave()
		fn()
	}()
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.gone != nil {
		close(c.gone)
		c.gone = nil
	}
}

// Wait waits until no goroutine is left, or ctx is done.
func (c *crew) Wait(ctx context.Context) {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return
	}
	if c.gone == nil {
		c.gone = make(chan struct{})
	}
	gone := c.gone
	c.mu.Unlock()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}
