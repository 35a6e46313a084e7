package locker

import (
	"context"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Name is a lock's name in a manager. It is the key under which a context is searched for a live hold. It is safe for
// concurrent use.
type Name struct {
	manager *Manager
	key     any // the name in Redis, prefix included, boxed once
	err     error
}

// Name returns the named lock of the manager; calls on it fail if the name is not a good one.
func (m *Manager) Name(name string) Name {
	n := Name{manager: m, key: m.core.Prefix + name}
	n.err = core.CheckUserName(name, n.text())
	return n
}

// Key returns the lock with this key, of a kind whose keys are not names. Calls on it fail with err if that is not nil.
func (m *Manager) Key(key string, err error) Name { return Name{manager: m, key: key, err: err} }

func (n *Name) text() string { s, _ := n.key.(string); return s }

// User returns the name as the user gave it.
func (n *Name) User() string { return n.manager.kind.User(n.manager.core, n.text()) }

// Verify asks Redis whether this client's own leases of the name, of any kind, are still there.
func (n *Name) Verify() {
	for _, l := range n.leases() {
		l.Verify()
	}
}

// tookOver ends this client's own lease of the name, of any kind, that an owner had from whom the lock was taken over.
func (n *Name) tookOver(from string) {
	for _, l := range n.leases() {
		if l.Owner() == from {
			l.Gone()
		}
	}
}

// leases returns this client's leases of the name, of any kind.
func (n *Name) leases() (all []*lease.Lease) {
	for _, h := range n.manager.core.Holders() {
		if ns, ok := h.(*Namespace); ok {
			sh := ns.shard(n.text())
			sh.mu.Lock()
			all = sh.leasesLocked(n.text(), all)
			sh.mu.Unlock()
		}
	}
	return all
}

// leasesLocked adds the leases of a name.
func (sh *shard) leasesLocked(key string, to []*lease.Lease) []*lease.Lease {
	if holder := sh.held[key]; holder != nil {
		to = append(to, holder)
	}
	for l := range sh.unnamed {
		if l.Name() == key {
			to = append(to, l)
		}
	}
	return to
}

// Finds reports whether a search of a context for a hold of the name ends at a level of the lease.
func (n *Name) Finds(l *lease.Lease) bool {
	m, ok := l.Listener().(*Manager)
	return ok && m.Namespace == n.manager.Namespace && l.Name() == n.text()
}

// Same reports whether locks of the two names exclude each other in one client.
func (n *Name) Same(other *Name) bool {
	return n.manager.Namespace == other.manager.Namespace && n.key == other.key
}

// Meets reports whether the two are one key of one server: who has one of them keeps the other out, whatever their kinds.
func (n *Name) Meets(other *Name) bool {
	return n.manager.core.Redis == other.manager.core.Redis && n.key == other.key
}

// Force frees the lock by a call that says whether there was anything to free, and reports whether there was. It is sent once: a
// second one would free whoever came after the first. A lease of this client notices at once.
func (n *Name) Force(ctx context.Context, call func() *script.Call) (bool, error) {
	if err := n.Check(); err != nil {
		return false, err
	}
	c, err := n.manager.core.Once(ctx, call)
	if err != nil {
		if c != nil && script.Judge(err) == script.Unknown {
			n.Verify()
		}
		return false, err
	}
	freed, err := n.manager.leases.Receivers(c)
	if freed > 0 {
		n.Verify()
	}
	return freed > 0, err
}

// Check returns what is wrong with the name.
func (n *Name) Check() error { return n.err }

// Key returns the lock's name in Redis.
func (n *Name) Key() string { return n.text() }

// HoldOf returns the innermost live hold, of any kind in the namespace, that ctx descends from; nil if there is none.
func (n *Name) HoldOf(ctx context.Context) *lease.Hold {
	if ctx == nil {
		return nil
	}
	hold, _ := ctx.Value(n).(*lease.Hold)
	return hold
}

// Sealed is embedded in this module's kinds of lock, by an alias with a small letter: it gives them the unexported method of
// rlock.Locker, and names the lock for a multi-lock.
type Sealed struct {
	name *Name // nil for a lock that is made of others
}

// Seal returns what a lock of the given name embeds.
func Seal(n *Name) Sealed { return Sealed{n} }

func (s Sealed) sealed() *Name { return s.name }

// Locker is the part of rlock.Locker that only this module's locks have.
type Locker interface{ sealed() *Name }

// NameOf returns the name of a lock; nil if it is made of others, or of nothing.
func NameOf(l Locker) *Name { return l.sealed() }
