// Package lease holds what all kinds of lock have in common: how one is waited for, held, kept, lost and released.
//
// A lease is what Redis has granted to this client under one owner id. A hold is one level of it, and what a user has.
// A line is where the goroutines of this client stand that want a lock which somebody has; only its head asks Redis.
// A kind of lock supplies its scripts and its channel, and nothing else.
//
// Lock order: a shard's mu before a lease's mu. Neither is held during I/O, a send that could block, or a call of a user's context.
package lease

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind is one kind of lock: it builds script calls and reads their replies.
type Kind interface {
	// Title is the name of the kind's package, for messages.
	Title() string
	// Channel is where a release of the named lock is announced.
	Channel(key string) string
	// Acquire asks for the lock.
	Acquire(ask Ask) *script.Call
	// Acquired reads Acquire's reply.
	Acquired(*script.Call) (Reply, error)
	// Keep sets the levels and the lease of a lock that the owner holds.
	Keep(key, owner any, levels int, lease time.Duration) *script.Call
	// Release frees the lock if the owner holds it, and wakes its waiters. Its reply is 0 if the owner does not hold it, else one
	// more than the number of clients that heard of it.
	Release(key, owner any) *script.Call
	// Renew sets the lease of locks that share a slot, each if its owner holds it. Its reply lists those that are lost.
	Renew(keys, owners []any, lease time.Duration) *script.Call
}

// Ask is one try to acquire.
type Ask struct {
	Key, Owner any
	Lease      time.Duration
	// TakeOver lets the owner have the lock if it holds it already.
	TakeOver bool
	// Verify looks at the type of a key that is busy.
	Verify bool
}

// Reply is the answer to a try.
type Reply struct {
	Granted bool
	// TTL is how long the present lease lasts if it was not granted; negative if it has no end.
	TTL time.Duration
	// Token is the fencing token of what was granted; 0 if the kind has none.
	Token int64
}

// Space is one kind of lock of one client. Spaces that share a registry exclude each other's holds: the reentrant and
// the fenced lock do. It is safe for concurrent use.
type Space struct {
	*Registry
	kind Kind
}

// NewSpace returns a space of the given kind.
func NewSpace(r *Registry, kind Kind) *Space { return &Space{Registry: r, kind: kind} }

// Registry knows the leases and the lines of one name space of a client. It is safe for concurrent use.
type Registry struct {
	engine *engine.Engine
	seed   maphash.Seed
	shards [64]shard
	leases atomic.Int64 // granted and not yet released or lost
}

// shard is a part of the names.
type shard struct {
	mu    sync.Mutex // guards all below, and every line in lines
	held  map[string]*Lease
	most  int // the most entries that held has had
	lines map[string]*line
	owned map[string]struct{} // owner ids of callers' own that are in use
	all   map[*Lease]struct{} // leases that no name in held leads to: an older one of a name taken twice
}

// NewRegistry returns the registry of a client, which Close will drain.
func NewRegistry(e *engine.Engine) *Registry {
	r := &Registry{engine: e, seed: maphash.MakeSeed()}
	for i := range r.shards {
		s := &r.shards[i]
		s.held, s.lines = map[string]*Lease{}, map[string]*line{}
	}
	e.Register(r)
	return r
}

func (r *Registry) shard(key string) *shard {
	return &r.shards[maphash.String(r.seed, key)%uint64(len(r.shards))]
}

// Open returns the number of leases that are not released yet.
func (r *Registry) Open() int { return int(r.leases.Load()) }

// each returns all leases.
func (r *Registry) each() []*Lease {
	var all []*Lease
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, l := range s.held {
			all = append(all, l)
		}
		for l := range s.all {
			all = append(all, l)
		}
		s.mu.Unlock()
	}
	return all
}

// Closing ends the contexts of all holds, which stay held until they are unlocked or drained.
func (r *Registry) Closing() {
	for _, l := range r.each() {
		l.closing()
	}
}

// Drain releases what is still held, many at a time, until the limit is over.
func (r *Registry) Drain(limit time.Duration) {
	deadline := time.Now().Add(limit)
	leases := make(chan *Lease) // closed below, when all are handed out
	var workers sync.WaitGroup
	for range min(256, r.Open()) {
		workers.Go(func() { // ends with leases
			for l := range leases {
				l.drain(time.Until(deadline))
			}
		})
	}
	for _, l := range r.each() {
		if time.Now().After(deadline) {
			break
		}
		leases <- l
	}
	close(leases)
	workers.Wait()
}

// addLocked makes a lease known.
func (s *Space) addLocked(sh *shard, l *Lease) {
	if older := sh.held[l.name()]; older != nil {
		if sh.all == nil {
			sh.all = map[*Lease]struct{}{}
		}
		sh.all[older] = struct{}{}
	}
	sh.held[l.name()] = l
	sh.most = max(sh.most, len(sh.held))
	s.leases.Add(1)
}

// removeLocked forgets a lease.
func (s *Space) removeLocked(sh *shard, l *Lease) {
	if sh.held[l.name()] == l {
		delete(sh.held, l.name())
	} else {
		if _, ok := sh.all[l]; !ok {
			return
		}
		delete(sh.all, l)
	}
	if len(sh.held) == 0 && sh.most > 1024 { // a map does not shrink by itself
		sh.held, sh.most = map[string]*Lease{}, 0
	}
	s.leases.Add(-1)
	s.engine.Freed()
}

// urgent is how releases and renewals are sent.
func urgent(limit time.Duration) batch.Ask { return batch.Ask{Class: batch.Urgent, Limit: limit} }
