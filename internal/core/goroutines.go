package core

import (
	"context"
	"sync"
)

// Goroutines counts those that come and go, and can wait for an instant without any. A sync.WaitGroup may not be added to
// while somebody waits for it.
type Goroutines struct {
	mu   sync.Mutex // guards all below
	n    int
	none chan struct{} // closed when n falls to 0; nil while nobody waits
}

// Go runs fn on a goroutine that Wait waits for.
func (w *Goroutines) Go(fn func()) {
	w.mu.Lock()
	w.n++
	w.mu.Unlock()
	go func() { // its owner says what ends fn
		defer w.leave()
		fn()
	}()
}

func (w *Goroutines) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n--; w.n == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// Wait waits until no goroutine is left, or ctx is done.
func (w *Goroutines) Wait(ctx context.Context) {
	w.mu.Lock()
	if w.n == 0 {
		w.mu.Unlock()
		return
	}
	if w.none == nil {
		w.none = make(chan struct{})
	}
	none := w.none
	w.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}
