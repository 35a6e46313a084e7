package queue

import (
	"slices"
	"sync"
	"sync/atomic"
)

// turn is what tells Redis one call from the others of its client.
type turn struct {
	client string
	number uint64
	floor  uint64 // no call below is waited for any more: one that arrives yet must not act
}

// turns are the numbered calls on one queue that are under way.
type turns struct {
	mu   sync.Mutex // guards open
	open []uint64   // rising
}

// begin gives a call the next number of the client.
func (t *turns) begin(last *atomic.Uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := last.Add(1)
	t.open = append(t.open, n)
	return n
}

// end says that nobody waits for a call any more.
func (t *turns) end(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, found := slices.BinarySearch(t.open, number); found {
		t.open = slices.Delete(t.open, i, i+1)
	}
}

// floor returns the lowest number under way. It is called while there is one.
func (t *turns) floor() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[0]
}
