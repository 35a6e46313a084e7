// Package lease is what Redis has granted to this client under one owner id: its levels, their contexts and deadlines, its loss and
// release. Package keepalive renews it.
//
// A [Hold] is one level of a [Lease], and what a user has. A lease knows no queue: what concerns those who wait, and who keeps the
// leases, it reports to a [Listener].
//
// Lock order: the listener's guard of a name before a lease's mu, and that before its renewal group's. None is held during I/O, a send
// that could block, or a call of a user's context.
package lease

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/keepalive"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind makes the calls for a lock that was granted, and reads their replies, that to the attempt included. What is marked as optional is nil, or the zero value, for a
// plain lock.
type Kind struct {
	Name  string // of the kind, see package kinds
	Modes bool   // its levels read or write
	Noun  string // what is held, for messages; optional, for "lock"
	// ID returns an owner id as users know it; optional, for one that they know as it is.
	ID func(owner string) string
	// Named returns the name, prefix included, of the object that has a key; optional, for one whose key is its name.
	Named func(key string) string

	// Channel is where a release of the named lock is announced.
	Channel func(key string) string
	// Acquired reads the reply to an attempt to acquire.
	Acquired func(*script.Call) (Reply, error)
	// Keep sets the levels and the lease of a lock that the owner holds. It does not shorten a lease of which more than most is left:
	// a newer call has set that. Its reply is 0 if the owner does not hold the lock, and 1 if it was set; if it changed nothing because of
	// most, it may be what is left, in ms.
	Keep func(key, owner any, levels Levels, lease, most time.Duration) *script.Call
	// Release frees the lock if the owner holds it, and wakes its waiters. Its reply is 0 if the owner does not hold it, else one
	// more than the number of clients that received the message, or -1 if the user may not publish it.
	Release func(key, owner any) *script.Call
	// Renew sets the lease of locks that share a slot, each if its owner holds it: all have levels of reading, or none has. Its reply
	// lists those that are lost. It must not keep the slices.
	Renew func(mode Mode, keys, owners []any, lease time.Duration) *script.Call
	// RenewApart, which is optional, renews one lease of several keys by calls of one key each, whose replies are as that of Renew. While
	// a slot moves to another node the keys may be in two places: then Renew is refused.
	RenewApart func(mode Mode, key, owner any, lease time.Duration) []*script.Call
}

// Reply is the answer to an attempt to acquire.
type Reply struct {
	Granted bool
	// TTL is how long the present lease lasts if it was not granted; negative if it has no end.
	TTL time.Duration
	// Token is the fencing token of what was granted; 0 if the kind has none.
	Token int64
	// Instead, if it was not granted, is the error with which all calls are to end that wait for it; nil to go on waiting.
	Instead error
}

// User returns the name, as the user gave it, of the object that has a key.
func (k *Kind) User(c *core.Core, key string) string {
	if k.Named != nil {
		key = k.Named(key)
	}
	return c.UserName(key)
}

// Listener is notified of what becomes of leases.
type Listener interface {
	// Guard returns the mutex of the lease's name, under which it is handed off, downgraded, or begins to be released. It is locked
	// before the lease's.
	Guard(l *Lease) sync.Locker

	// The next three are called with the guard and the lease's lock held.

	// HandOff gives the lease to a call of this client that waits for it, by [Lease.AddLocked], and returns what is to be done when no
	// lock is held; nil if nobody waits.
	HandOff(l *Lease, now time.Duration) (after func())
	// Releasing says that the release of the lease begins: it keeps nobody out any more.
	Releasing(l *Lease)
	// Downgraded says that the last level of writing has ended: other readers may join.
	Downgraded(l *Lease)

	// The others are called with no lock held.

	// Shared says that Redis knows of levels among which is none of writing.
	Shared(l *Lease)
	// Released says that the lease is over by a release, of which so many clients were notified; -1 if that is not known, or if Redis did
	// not have it.
	Released(l *Lease, notified int)
	// Lost says that the lease is over although nobody released it.
	Lost(l *Lease)
}

// Manager makes the leases of one kind of lock of one client. It is safe for concurrent use.
type Manager struct {
	core     *core.Core
	kind     *Kind
	listener Listener
	renewer  *keepalive.Renewer
	muted    sync.Once // logs that the user may not publish
}

// NewManager returns a manager of the given kind, whose leases report to the listener.
func NewManager(c *core.Core, kind *Kind, listener Listener) *Manager {
	renewer := keepalive.New(c, keepalive.Calls{Renew: kind.Renew, Apart: kind.RenewApart})
	return &Manager{core: c, kind: kind, listener: listener, renewer: renewer}
}

// urgent is how releases and renewals are sent.
func urgent(limit time.Duration) pipeline.SendOptions {
	return pipeline.SendOptions{Class: pipeline.Urgent, Limit: limit}
}

// soon runs what releases a lease on one of the client's workers. Close waits for it.
func (m *Manager) soon(fn func()) {
	m.core.Begin()
	m.core.Workers.Go(func() {
		defer m.core.End()
		fn()
	})
}

// Term is how long a level lasts.
type Term struct {
	Lease   *time.Duration // a fixed lease; nil for one that is renewed
	Renewed *time.Duration // the lease of one that is renewed; nil for the client's
	MaxHold *time.Duration // limit of renewal; nil for none
	Site    events.Site    // that acquires
	Part    bool           // of a hold of several locks, which logs its loss itself
}

// Plain reports whether a level lasts until its release.
func (t Term) Plain() bool { return t == Term{Site: t.Site, Part: t.Part} }

// Length returns the lease to ask for: one that is renewed has that of the client unless the term says otherwise.
func (t Term) Length(c *core.Core) time.Duration {
	length := t.renewed(c)
	if t.Lease != nil {
		length = *t.Lease
	}
	if t.MaxHold != nil {
		length = min(length, *t.MaxHold)
	}
	return length
}

// renewed returns the lease that a renewal sets.
func (t Term) renewed(c *core.Core) time.Duration {
	if t.Renewed != nil {
		return *t.Renewed
	}
	return c.Lease
}

// Shortest is the shortest lease.
const Shortest = 10 * time.Millisecond

const longest = 24 * time.Hour

// CheckLease returns an error that wraps [errs.ErrInvalid] unless d can be a lease.
func CheckLease(d time.Duration) error {
	return errs.Between("lease", d, Shortest, longest)
}
