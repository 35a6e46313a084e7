package locker

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

var _ lease.Listener = (*Manager)(nil)

// Guard returns the mutex of the lease's shard.
func (m *Manager) Guard(l *lease.Lease) sync.Locker { return &m.shard(l.Name()).mu }

// HandOff gives a lease to the next waiter of this client, if both are plain. One that was taken over is not the name's any more.
func (m *Manager) HandOff(l *lease.Lease, now time.Duration) (after func()) {
	sh := m.shard(l.Name())
	if m.kind.shared() || sh.held[l.Name()] != l {
		return nil
	}
	q := sh.queues[l.Name()]
	if q == nil {
		return nil
	}
	head := q.Head() // if its ctx is done it passes the hold on; to ask here could need another lease's mutex
	if head == nil {
		return nil
	}
	w, _ := head.Call.(*Waiter)
	if w.manager != m || !w.options.Plain() {
		return nil
	}
	w.hold = l.AddLocked(w.ctx, w.options.Term, now)
	w.Wake()
	left := w.leaveLocked()
	return func() { q.left(left) }
}

// Releasing has the lease keep nobody out any more, and those who wait look for the lock themselves, should the message be lost.
func (m *Manager) Releasing(l *lease.Lease) {
	sh := m.shard(l.Name())
	sh.setAsideLocked(l)
	if q := sh.queues[l.Name()]; q != nil && !m.kind.shared() {
		q.AskAt(q.now() + waitqueue.Recheck) // at the latest: the message or the reply comes first as a rule
	}
}

// Downgraded has the lease keep nobody out any more.
func (m *Manager) Downgraded(l *lease.Lease) { m.shard(l.Name()).setAsideLocked(l) }

// Shared has the readers of this client who wait ask at once, after a downgrade: the message may be lost.
func (m *Manager) Shared(l *lease.Lease) {
	if m.mode == lease.Read {
		return
	}
	sh := m.shard(l.Name())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := m.core.Clock.Now()
	sh.readers[l.Name()].admitLocked(now)
	sh.queues[l.Name()].resumeLocked(now)
}

// Released forgets a released lease and lets the waiters go on. So many clients were notified of the release.
func (m *Manager) Released(l *lease.Lease, notified int) {
	if notified > 0 && m.kind.Heard != nil {
		m.kind.Heard(l.Name())
	}
	sh := m.shard(l.Name())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m.removeLocked(sh, l)
	if q := sh.queues[l.Name()]; q != nil && !m.kind.shared() { // those who wait to share are notified by Redis, as everybody is
		q.Released(m.core.Clock.Now(), notified, m.core.HandoffBudget)
	}
}

// Lost forgets a lease that was lost, and has those ask who wait.
func (m *Manager) Lost(l *lease.Lease) {
	sh := m.shard(l.Name())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m.removeLocked(sh, l)
	now := m.core.Clock.Now()
	sh.readers[l.Name()].resumeLocked(now)
	sh.queues[l.Name()].resumeLocked(now)
}
