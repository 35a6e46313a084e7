package locker

import "time"

// Key returns the lock's name in Redis.
func (w *Waiter) Key() string { return w.queue.key }

// Entry returns the id under which Redis knows the waiter, which does not change once it was refused.
func (w *Waiter) Entry() any { return w.entry }

// LastAsked returns when the waiter last asked. It is for [Upkeep].
func (w *Waiter) LastAsked() time.Duration { return w.asked }

// Questions returns how often the waiter has asked; 0 while it asks, since that reply will say more than any other.
func (w *Waiter) Questions() uint64 {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	n, asking := w.Asks()
	if asking {
		return 0
	}
	return n
}

// Resume has the waiter ask now, unless it has asked more often than that.
func (w *Waiter) Resume(questions uint64) {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	if n, _ := w.Asks(); n == questions {
		w.queue.Resume(w.queue.now())
	}
}

// DoubtHolder has this client's holder of the lock, if there is one, looked at: Redis says that the lock is free.
func (w *Waiter) DoubtHolder() {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	if holder := w.queue.shard.held[w.queue.key]; holder != nil {
		holder.Recheck()
	}
}

// Swept notes the error of the upkeep's last question; nil for one that was answered.
func (w *Waiter) Swept(err error) {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	w.lastErr = err
}

// Fail ends the wait with the error of the upkeep's last question.
func (w *Waiter) Fail(err error) {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	w.failed = err
	w.Wake()
}

// failure returns what has ended the wait.
func (w *Waiter) failure() error {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	return w.failed
}
