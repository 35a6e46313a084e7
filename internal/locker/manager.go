// Package locker acquires locks: how one is asked for and waited for, and who of this client has it.
//
// The goroutines of this client that want a lock which somebody has wait in a queue; only its head asks Redis. What is granted is a
// lease, of package lease, which reports to the manager that asked for it.
//
// Lock order: a shard's mu before a lease's mu. None is held during I/O, a send that could block, or a call of a user's context.
package locker

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/presence"
)

// Manager is one kind of lock of one client. Managers that share a namespace exclude each other's holds: the reentrant and
// the fenced lock do. It is safe for concurrent use.
type Manager struct {
	*Namespace
	kind   *Kind
	mode   lease.Mode // of a lease's first level
	leases *lease.Manager
}

// NewManager returns a manager of the given kind.
func NewManager(r *Namespace, kind *Kind) *Manager {
	s := &Manager{Namespace: r, kind: kind}
	if kind.Sharing == Readers {
		s.mode = lease.Read
	}
	s.leases = lease.NewManager(r.core, &kind.Kind, s)
	return s
}

// Namespace knows the leases and the wait queues of one name space of a client. It is safe for concurrent use.
type Namespace struct {
	core    *core.Core
	seed    maphash.Seed
	shards  [64]shard
	granted atomic.Int64 // leases that are not yet released or lost
	entries atomic.Int64 // of calls that are known to Redis as waiters, and have to leave there
}

// shard is a part of the names.
type shard struct {
	mu      sync.Mutex              // guards all below, and every wait queue of its names
	held    map[string]*lease.Lease // those that keep everybody else out
	peak    int                     // the most entries that held has had
	queues  map[string]*queue
	readers map[string]*queue         // of those who want to share a name
	alone   map[*Waiter]struct{}      // who wait where Redis orders the waiters: no queue in the maps has them
	unnamed map[*lease.Lease]struct{} // the others: shared ones, those that are being released, and an older one of a name taken twice
}

// NewNamespace returns a namespace of a client, which Close will drain.
func NewNamespace(e *core.Core) *Namespace {
	r := &Namespace{core: e, seed: maphash.MakeSeed()}
	for i := range r.shards {
		s := &r.shards[i]
		s.held, s.queues, s.readers = map[string]*lease.Lease{}, map[string]*queue{}, map[string]*queue{}
		s.alone = map[*Waiter]struct{}{}
	}
	e.Register(r)
	presence.Of(e).Add(r)
	return r
}

func (ns *Namespace) shard(key string) *shard {
	return &ns.shards[maphash.String(ns.seed, key)%uint64(len(ns.shards))]
}

// Open returns the number of leases that are not released yet, and of waiting calls that Redis may know of.
func (ns *Namespace) Open() int { return int(ns.granted.Load() + ns.entries.Load()) }

// leases returns those that are known.
func (ns *Namespace) leases() []*lease.Lease {
	var all []*lease.Lease
	for i := range ns.shards {
		s := &ns.shards[i]
		s.mu.Lock()
		for _, l := range s.held {
			all = append(all, l)
		}
		for l := range s.unnamed {
			all = append(all, l)
		}
		s.mu.Unlock()
	}
	return all
}

// Verify asks Redis for all leases.
func (ns *Namespace) Verify() {
	for _, l := range ns.leases() {
		l.Verify()
	}
}

// Closing ends the contexts of all holds, which stay held until they are unlocked or drained.
func (ns *Namespace) Closing() {
	for _, l := range ns.leases() {
		l.Closing()
	}
}

// Drain releases what is still held, many at a time, until the limit is over, unless it is to be abandoned.
func (ns *Namespace) Drain(limit time.Duration) {
	if ns.core.Abandon {
		return
	}
	deadline := time.Now().Add(limit)
	leases := make(chan *lease.Lease) // closed below, when all are handed out
	var workers sync.WaitGroup
	for range min(256, ns.Open()) {
		workers.Go(func() { // ends with leases
			for l := range leases {
				l.Drain(time.Until(deadline))
			}
		})
	}
	for _, l := range ns.leases() {
		if time.Now().After(deadline) {
			break
		}
		leases <- l
	}
	close(leases)
	workers.Wait()
}

// Wait does nothing: a namespace has no goroutines but Drain's.
func (ns *Namespace) Wait(time.Time) {}

// queuesOf returns the wait queues of the manager's waiters.
func (m *Manager) queuesOf(sh *shard) map[string]*queue {
	if m.kind.shared() {
		return sh.readers
	}
	return sh.queues
}

// addLocked makes a lease known.
func (m *Manager) addLocked(sh *shard, l *lease.Lease) {
	m.granted.Add(1)
	unnamed := l
	if !m.kind.shared() {
		unnamed = sh.held[l.Name()]
		sh.held[l.Name()] = l
		sh.peak = max(sh.peak, len(sh.held))
	}
	if unnamed != nil {
		sh.putUnnamedLocked(unnamed)
	}
}

// putUnnamedLocked keeps a lease to which no name in held leads.
func (sh *shard) putUnnamedLocked(l *lease.Lease) {
	if sh.unnamed == nil {
		sh.unnamed = map[*lease.Lease]struct{}{}
	}
	sh.unnamed[l] = struct{}{}
}

// setAsideLocked has a lease keep nobody out any more: its release has begun, or it is a reader's from here on.
func (sh *shard) setAsideLocked(l *lease.Lease) {
	if sh.held[l.Name()] == l {
		delete(sh.held, l.Name())
		sh.putUnnamedLocked(l)
	}
}

// removeLocked forgets a lease.
func (m *Manager) removeLocked(sh *shard, l *lease.Lease) {
	if sh.held[l.Name()] == l {
		delete(sh.held, l.Name())
	} else {
		if _, ok := sh.unnamed[l]; !ok {
			return
		}
		delete(sh.unnamed, l)
	}
	if len(sh.held) == 0 && sh.peak > 1024 { // a map does not shrink by itself
		sh.held, sh.peak = map[string]*lease.Lease{}, 0
	}
	m.granted.Add(-1)
	m.core.Freed()
}
