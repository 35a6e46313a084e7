package fair

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/core"
)

// keyCache caches the keys of recently used queues: making them is half of what a call would otherwise allocate. It is
// safe for concurrent use.
type keyCache struct {
	seed   maphash.Seed
	recent [256]atomic.Pointer[queueKeys]
}

func newKeyCache() *keyCache { return &keyCache{seed: maphash.MakeSeed()} }

// QueueKeys returns the keys of a lock's queue and of the times for which its waiters are good, by the key of the lock. It is
// for this module's objects that are made of a fair lock.
func QueueKeys(lock string) (queue, timeouts string) {
	return core.Prefixed("redisson_lock_queue", lock), core.Prefixed("redisson_lock_timeout", lock)
}

// queueKeys are the keys of one lock's queue, boxed once.
type queueKeys struct{ lock, queue, timeouts, channel any }

// of returns the keys of a lock's queue. A name replaces the one that has the same slot of the cache.
func (q *keyCache) of(lock any) *queueKeys {
	name, _ := lock.(string)
	place := &q.recent[maphash.String(q.seed, name)%uint64(len(q.recent))]
	if known := place.Load(); known != nil && known.lock == lock {
		return known
	}
	waiters, timeouts := QueueKeys(name)
	made := &queueKeys{lock: lock, queue: waiters, timeouts: timeouts, channel: channel(name)}
	place.Store(made)
	return made
}
