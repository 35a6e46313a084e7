package rfairlock

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

// queueKeys are the keys of one lock's queue, boxed once.
type queueKeys struct{ lock, queue, timeouts, channel any }

// of returns the keys of a lock's queue. A name replaces the one that has the same slot of the cache.
func (q *keyCache) of(lock any) *queueKeys {
	name, _ := lock.(string)
	place := &q.recent[maphash.String(q.seed, name)%uint64(len(q.recent))]
	if known := place.Load(); known != nil && known.lock == lock {
		return known
	}
	made := &queueKeys{
		lock:     lock,
		queue:    core.Prefixed("redisson_lock_queue", name),
		timeouts: core.Prefixed("redisson_lock_timeout", name),
		channel:  channel(name),
	}
	place.Store(made)
	return made
}
