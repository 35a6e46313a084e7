// Package lease holds what all kinds of lock have in common: how one is waited for, held, kept, lost and released.
//
// A lease is what Redis has granted to this client under one owner id. A hold is one level of it, and what a user has.
// The goroutines of this client that want a lock which somebody has wait in a queue; only its head asks Redis.
// A kind of lock supplies its scripts and its channel, and nothing else.
//
// Lock order: a shard's mu before a lease's mu, and that before its group's. None is held during I/O, a send that
// could block, or a call of a user's context.
package lease

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
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
	// Keep sets the levels and the lease of a lock that the owner holds. It does not shorten a lease of which more than most is left:
	// a newer call has set that. Its reply is 0 if the owner does not hold the lock, and 1 if it was set; if it changed nothing because of
	// most, it may be what is left, in ms.
	Keep(key, owner any, levels Levels, lease, most time.Duration) *script.Call
	// Release frees the lock if the owner holds it, and wakes its waiters. Its reply is 0 if the owner does not hold it, else one
	// more than the number of clients that received the message, or -1 if the user may not publish it.
	Release(key, owner any) *script.Call
	// Renew sets the lease of locks that share a slot, each if its owner holds it: all have levels of reading, or none has. Its reply
	// lists those that are lost. It must not keep the slices.
	Renew(mode Mode, keys, owners []any, lease time.Duration) *script.Call
}

// Queued is a Kind whose waiters are known to Redis. A waiting call has one entry there, whose id is the owner id of all its attempts,
// and leaves when it gives up.
type Queued interface {
	Kind
	// Leave takes out the entry of a call that waited for at most limit, 0 for no limit, frees what it may have been granted meanwhile,
	// and wakes whose turn it is. It may run twice.
	Leave(key, entry any, limit time.Duration) *script.Call
}

// Apart is a Queued kind of which each waiter is woken alone, over a channel of its own. They form no queue here, and are
// looked after together.
type Apart interface {
	Queued
	// ChannelOf is where the waiter is told that it is its turn.
	ChannelOf(key, entry string) string
	// Upkeep looks after at most 100 waiters for one name. Its reply is an array of integers: the position, from 1, of the
	// one whose turn it is, 0 for none; when to look again, in ms, negative for no such time; and the positions of those
	// that are no longer queued.
	Upkeep(key any, entries []any) *script.Call
	// Period is how often a waiter has to be looked after to keep its place; 0 if it keeps it anyway.
	Period() time.Duration
}

// Shared is a Kind of which several leases may live at a time under one name. Callers ask in parallel until one is
// refused; then they queue. Nothing is handed on, and no lease here keeps others from asking.
type Shared interface {
	Kind
	// Heads returns how many waiters at the head of the queue may ask after a message; 0 for one that means nothing.
	Heads(payload string) int
}

// Scattered is a Kind whose leases have more than one key each. While a slot moves to another node these may be in two places: then
// Renew is refused.
type Scattered interface {
	Kind
	// RenewApart renews one lease by calls of one key each, whose replies are as that of Renew.
	RenewApart(mode Mode, key, owner any, lease time.Duration) []*script.Call
}

// Pool is a Shared kind whose leases have nothing to do with one another: none nests in another, whatever the context of
// its call, and one call may ask for several at a time, all or none.
type Pool interface {
	Shared
	// Noun is what a lease is called in messages.
	Noun() string
	// Together returns a fresh owner id of a call that asks for n leases. Acquire and Release take it too.
	Together(n int) any
	// Split returns the owner ids of which such an id is made.
	Split(owner any) []any
}

// Ask is one try to acquire.
type Ask struct {
	Key, Owner any
	Lease      time.Duration
	// From is an owner from whom the lock passes to Owner if it holds it; empty for none.
	From string
	// Verify looks at the type of a key that is busy.
	Verify bool
	// Waits says that the call goes on waiting if it is refused, and Limit for how long in all; 0 for no limit. The owner of a Queued
	// kind that waits may hold the lock already, by an earlier attempt of the same call.
	Waits bool
	Limit time.Duration
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

	// What else the kind is; nil if it is not.
	queued Queued
	apart  Apart
	shared Shared
	pool   Pool
	mode   Mode                 // of a lease's first level
	room   room                 // for the calls of groups
	due    *timer.Batch[*Lease] // to be renewed
}

// NewSpace returns a space of the given kind.
func NewSpace(r *Registry, kind Kind) *Space {
	s := &Space{Registry: r, kind: kind}
	s.queued, _ = kind.(Queued)
	s.apart, _ = kind.(Apart)
	s.shared, _ = kind.(Shared)
	s.pool, _ = kind.(Pool)
	if s.shared != nil && s.pool == nil {
		s.mode = Read
	}
	s.due = timer.NewBatch(r.core.Timers, s.renewDue)
	return s
}

// Registry knows the leases and the wait queues of one name space of a client. It is safe for concurrent use.
type Registry struct {
	core    *core.Core
	seed    maphash.Seed
	shards  [64]shard
	leases  atomic.Int64 // granted and not yet released or lost
	entries atomic.Int64 // of calls that are known to Redis as waiters, and have to leave there
	muted   sync.Once    // logs that the user may not publish
}

// shard is a part of the names.
type shard struct {
	mu      sync.Mutex // guards all below, and every wait queue of its names
	held    map[string]*Lease
	most    int // the most entries that held has had
	queues  map[string]*queue
	readers map[string]*queue   // of those who want to share a name
	upkeeps map[string]*upkeep  // of the names whose waiters are woken alone
	all     map[*Lease]struct{} // leases that no name in held leads to: shared ones, and an older one of a name taken twice
}

// NewRegistry returns a registry of a client, which Close will drain.
func NewRegistry(e *core.Core) *Registry {
	r := &Registry{core: e, seed: maphash.MakeSeed()}
	for i := range r.shards {
		s := &r.shards[i]
		s.held, s.queues, s.readers = map[string]*Lease{}, map[string]*queue{}, map[string]*queue{}
	}
	e.Register(r)
	return r
}

func (r *Registry) shard(key string) *shard {
	return &r.shards[maphash.String(r.seed, key)%uint64(len(r.shards))]
}

// Open returns the number of leases that are not released yet, and of waiting calls that Redis may know of.
func (r *Registry) Open() int { return int(r.leases.Load() + r.entries.Load()) }

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

// Drain releases what is still held, many at a time, until the limit is over, unless it is to be abandoned.
func (r *Registry) Drain(limit time.Duration) {
	if r.core.Abandon {
		return
	}
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

// Wait does nothing: a registry has no goroutines but Drain's.
func (r *Registry) Wait(time.Time) {}

// queuesOf returns the wait queues of the space's waiters.
func (s *Space) queuesOf(sh *shard) map[string]*queue {
	if s.shared != nil {
		return sh.readers
	}
	return sh.queues
}

// addLocked makes a lease known.
func (s *Space) addLocked(sh *shard, l *Lease) {
	s.leases.Add(1)
	beside := l
	if s.shared == nil {
		beside = sh.held[l.name()]
		sh.held[l.name()] = l
		sh.most = max(sh.most, len(sh.held))
	}
	if beside != nil {
		sh.keepLocked(beside)
	}
}

// keepLocked keeps a lease to which no name in held leads.
func (sh *shard) keepLocked(l *Lease) {
	if sh.all == nil {
		sh.all = map[*Lease]struct{}{}
	}
	sh.all[l] = struct{}{}
}

// shareLocked has a lease that was alone keep nobody out any more.
func (sh *shard) shareLocked(l *Lease) {
	delete(sh.held, l.name())
	sh.keepLocked(l)
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
	s.core.Freed()
}

// urgent is how releases and renewals are sent.
func urgent(limit time.Duration) pipeline.Ask {
	return pipeline.Ask{Class: pipeline.Urgent, Limit: limit}
}
