package locker

import (
	"time"

	"github.com/redlatch/redlatch/internal/core"
)

// Upkeep looks after waiters that Redis keeps in a queue of its own. Its methods must not block, and of a Waiter's may call Key, Entry and LastAsked alone: they
// are called under a mutex that the others take. Channel may be called at any time.
type Upkeep interface {
	// Channel is where a waiter is notified that it is its turn.
	Channel(key, entry string) string
	// Refused looks after a waiter from here on, if it does not yet: the lock is another's, for at most left; negative for no end.
	Refused(w *Waiter, left time.Duration)
	// Listening says that messages to the waiter arrive from here on.
	Listening(w *Waiter)
	// Left looks after it no more. It does nothing for a waiter that was never refused.
	Left(w *Waiter)
	// Silent reports whether a question for the waiter is in flight, and its reply counts as missing.
	Silent(w *Waiter, now time.Duration) bool
}

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
		holder.Verify()
	}
}

// Swept notes the error of the upkeep's last question; nil for one that was answered.
func (w *Waiter) Swept(err error) {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	w.lastErr = err
	if holder := w.queue.shard.held[w.queue.key]; holder != nil {
		w.warnLocked(holder)
	}
}

// Fail ends the wait with the error of the upkeep's last question.
func (w *Waiter) Fail(err error) {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	w.failed = core.Judged(err)
	w.Wake()
}

// failure returns what has ended the wait.
func (w *Waiter) failure() error {
	w.queue.shard.mu.Lock()
	defer w.queue.shard.mu.Unlock()
	return w.failed
}
