package lease

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/keepalive"
	"github.com/redlatch/redlatch/internal/script"
)

// What package keepalive needs of a lease is here, but for Due and Gone, by which it may end.
var _ keepalive.Lease = (*Lease)(nil)

// Mutex returns the lease's.
func (l *Lease) Mutex() *sync.Mutex { return &l.mu }

// Ref returns the lock's name in Redis and the owner id.
func (l *Lease) Ref() (key, owner any) { return l.key, l.owner }

// HeldLocked reports whether the lease is held.
func (l *Lease) HeldLocked() bool { return l.state == holding }

// ArmLocked sets the timer for what comes next, if the lease is held.
func (l *Lease) ArmLocked() {
	if l.state != holding {
		return
	}
	if next := l.nextLocked(); next != keepalive.Never {
		l.manager.core.Timers.Set(&l.member.Timer, next)
	}
}

// RenewalLocked returns with which others one call can renew the lease, and when the first of its levels ends; false if it is not to
// be renewed now.
func (l *Lease) RenewalLocked(now time.Duration) (key keepalive.CallKey, ends time.Duration, ok bool) {
	if l.state != holding || !l.wantsRenewalLocked(now) {
		return keepalive.CallKey{}, 0, false
	}
	h := l.levels
	key.Length, key.Lease = l.lengthLocked(now), l.leaseLocked()
	key.Plain = h.next == nil && h.fixed == 0 && h.limit == 0 && !l.ops.busy()
	if l.reads && l.countLocked().Read > 0 { // a reader that enters under a writer is not there yet, and the writer keeps the lock
		key.Mode = Read
	}
	if l.manager.core.Cluster {
		key.Tag = script.Tag(l.Name())
	}
	return key, l.deadlineLocked(), true
}
