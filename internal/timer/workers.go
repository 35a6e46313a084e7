package timer

import "sync"

// Workers runs functions that may wait, as a task must not, on a bounded number of goroutines, which exist only while there is something to run.
type Workers struct {
	limit int
	wg    sync.WaitGroup // Close waits for the goroutines

	mu      sync.Mutex // guards all below
	queue   []func()
	running int
	closed  bool
}

// NewWorkers returns workers with at most limit goroutines.
func NewWorkers(limit int) *Workers { return &Workers{limit: limit} }

// Go queues fn. After Close it does nothing.
func (w *Workers) Go(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.queue = append(w.queue, fn)
	if w.running < w.limit {
		w.running++
		w.wg.Go(w.run) // ends when the queue is empty; Close waits for it
	}
}

func (w *Workers) run() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.queue = nil
			w.running--
			w.mu.Unlock()
			return
		}
		fn := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.mu.Unlock()
		fn()
	}
}

// Close drops what is queued and waits for what is running.
func (w *Workers) Close() {
	w.mu.Lock()
	w.closed = true
	w.queue = nil
	w.mu.Unlock()
	w.wg.Wait()
}
