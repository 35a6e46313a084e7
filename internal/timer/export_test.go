package timer

import "time"

// NewBatched returns a wheel that hands what is due to fire, in batches, instead of to the tasks.
func NewBatched(now func() time.Duration, fire func(due []*Timer)) *Wheel {
	w := New(now)
	w.fire = fire
	return w
}
