// Package keepalive renews leases: up to 100 in one call.
//
// A lease has a [Member], by which it is renewed, and is renewed only as a member of a group. Those that are due at the same time,
// and that one call can renew, form one. A group of plain leases lasts while it is at least half full, with one timer for all of
// them; all others end with the answer. Whatever else is done to a lease takes it out of its group first: [Member.Leave].
//
// Lock order: a lease's mutex before its group's mu.
package keepalive

import (
	"math"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/timer"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// Lease is what is renewed. It is the Task of its member's timer.
type Lease interface {
	timer.Task

	// Mutex guards the lease, and its member.
	Mutex() *sync.Mutex
	// Ref returns the lock's name in Redis and the owner id, as arguments of a call.
	Ref() (key, owner any)
	// Gone ends the lease: Redis has said that its owner does not hold the lock. It reports whether the lease was held.
	Gone() bool
	// Verify has Redis asked soon whether the owner still holds the lock.
	Verify()

	// The others are called with the mutex held.

	// RenewalLocked returns with which others one call can renew the lease, and when the first of its levels ends; false if it is not to be
	// renewed now.
	RenewalLocked(now time.Duration) (key CallKey, ends time.Duration, ok bool)
	// HeldLocked reports whether the lease is held.
	HeldLocked() bool
	// ArmLocked sets the timer for what comes next, if the lease is held.
	ArmLocked()
}

// CallKey is what leases have in common that one call can renew.
type CallKey struct {
	Length time.Duration // the lease to ask for
	Lease  time.Duration // of which a third passes between two renewals; Length is less where the end is near
	Tag    string        // on a cluster: decides the slot
	Mode   Mode
	Plain  bool // one renewed level is all there is to the lease
}

// Mode tells apart leases that need different calls; it is for who makes those.
type Mode uint8

// Member is the part of a lease that its renewal needs: a field of the lease, since there may be a million. Its methods are called
// with the lease's mutex held.
type Member struct {
	// Timer is the lease's. It is stopped while the timer of the group is all that the lease needs.
	Timer timer.Timer

	end   time.Duration // when Redis ends the lease; the group may know a later time
	next  time.Duration // when to renew it, while it is in no group
	group *group
	place uint8 // among the members of the group; guarded by the group's mu, like state while it is in one
	state memberState
	times uint32 // it was renewed so often before it was in its group, whose rounds count as well
}

// memberState is where a lease is in its renewal.
//
//	fine → departed → fine, failed, apart
//	     → fine, failed, apart
type memberState uint8

const (
	fine     memberState = iota // it is in a group, or due later; its last renewal succeeded
	departed                    // it has left its group, whose call is in flight or has just ended
	failed                      // the last call got an error or no reply
	apart                       // as well; the next call renews this lease alone, key by key
)

func (m *Member) lease() Lease { return m.Timer.Task.(Lease) } //nolint:forcetypeassert // by the contract of Lease

// End returns when Redis ends the lease, as far as this side knows.
func (m *Member) End() time.Duration {
	g := m.group
	if g == nil {
		return m.end
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.state == departed {
		return m.end
	}
	return max(m.end, g.end)
}

// SetEnd notes when Redis ends the lease, which has left its group.
func (m *Member) SetEnd(end time.Duration) { m.end = end }

// Next returns when to renew the lease; [Never] while it is in a group, or has left one whose call is in flight.
func (m *Member) Next() time.Duration {
	if m.group != nil {
		return Never
	}
	return m.next
}

// RenewAt sets when to renew a lease that is in no group.
func (m *Member) RenewAt(at time.Duration) { m.next = at }

// Fresh reports whether the lease is in no group, and its last renewal did not fail.
func (m *Member) Fresh() bool { return m.group == nil && m.state == fine }

// Times returns how often the lease was renewed.
func (m *Member) Times() int {
	times := m.times
	if g := m.group; g != nil {
		g.mu.Lock()
		if m.state != departed {
			times += g.rounds
		}
		g.mu.Unlock()
	}
	return int(times)
}

// Renewing returns a channel that is closed when the renewal in flight is answered or given up; nil if none is.
func (m *Member) Renewing() <-chan struct{} {
	g := m.group
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase != renewing {
		return nil
	}
	if g.answered == nil {
		g.answered = make(chan struct{})
	}
	return g.answered
}

// Leave takes the lease out of its group, if it is in one: it then has its own end and its own timer.
func (m *Member) Leave() {
	g := m.group
	if g == nil {
		return
	}
	g.mu.Lock()
	if m.state == departed {
		g.mu.Unlock()
		return
	}
	m.end, m.next, m.times = max(m.end, g.end), onGrid(g.next, g.of.Lease), m.times+g.rounds
	g.leaveLocked(m)
	g.mu.Unlock()
	m.lease().ArmLocked()
}

// groupKey returns with which others the lease is to be renewed, and when the first of its levels ends; false if it is not to be
// renewed now.
func (m *Member) groupKey(now time.Duration) (key groupKey, ends time.Duration, ok bool) {
	of, ends, ok := m.lease().RenewalLocked(now)
	return groupKey{CallKey: of, apart: m.state == apart}, ends, ok && of.Length >= time.Millisecond
}

// renewed takes the outcome of a call that renewed the lease. If that comes late, the lease may be in another group by then.
func (m *Member) renewed(g *group, o outcome) {
	l := m.lease()
	mu := l.Mutex()
	mu.Lock()
	defer mu.Unlock()
	if l.HeldLocked() {
		m.end = max(m.end, o.end)
	}
	if o.end > 0 {
		m.times++
	}
	if m.group != g {
		return
	}
	if m.state != departed { // else it knows its own end, which may be sooner
		end, rounds := g.until()
		m.end, m.times = max(m.end, end), m.times+rounds
	}
	m.group, m.state, m.next = nil, o.state, o.next
	l.ArmLocked()
}

// askAgain is for a lease that Redis did not find for a call, and that has left its group since: what the call looked for may have
// ended by a change that overtook it.
func (m *Member) askAgain(g *group) {
	m.renewed(g, outcome{next: g.renewer.core.Clock.Now(), state: failed})
	m.lease().Verify()
}
