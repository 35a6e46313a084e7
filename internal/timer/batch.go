package timer

import "time"

// Batch collects what tasks find to be done when they are due, so that it is done together. Its methods are for the wheel's
// goroutine.
type Batch[T any] struct {
	timer Timer
	wheel *Wheel
	do    func([]T)
	items []T
}

// NewBatch returns a batch for tasks on the wheel. do must not keep the slice.
func NewBatch[T any](w *Wheel, do func([]T)) *Batch[T] {
	b := &Batch[T]{wheel: w, do: do}
	b.timer.Task = b
	return b
}

// Add has item done once all tasks that are due at present have been called, or with the 511 items before it.
func (b *Batch[T]) Add(item T) {
	if len(b.items) == 0 {
		b.wheel.Set(&b.timer, 0) // a time that has passed: it fires after what is due already
	}
	b.items = append(b.items, item)
	if len(b.items) == maxBatch {
		b.Due(0)
	}
}

// Due does what was collected.
func (b *Batch[T]) Due(time.Duration) {
	b.do(b.items)
	clear(b.items)
	b.items = b.items[:0]
}
