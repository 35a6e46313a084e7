package relection

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// member is one that campaigns or leads. What Redis has of it is written again about once in a lease.
type member struct {
	timer    timer.Timer
	election *Election
	id       string // the owner id of its lock
	reign    reign  // set once, before anybody else has the leadership; zero for a candidate

	mu   sync.Mutex // guards the rest
	said said
	over bool // nothing is written again
}

const (
	keptLeases = 10 // for so many leases a value is good that is not written again
	shortest   = time.Minute
	entry      = 10 * time.Millisecond // after which a candidate's value is written
	keptTerm   = 24 * time.Hour        // the term of the last leader
)

// newMember returns a candidate, whose value is written down if it is not elected at once: nobody needs it for that.
func newMember(e *Election, value string) *member {
	m := &member{election: e, id: e.core.NextOwner(), said: said{value, e.core.NextNumber()}}
	m.timer.Task = m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.againLocked(entry)
	return m
}

// ttl returns how long a candidate's value is good.
func (m *member) ttl() time.Duration { return max(keptLeases*m.election.core.Lease, shortest) }

// leadCall writes down who leads, with a value.
func (m *member) leadCall(s said) *script.Call {
	return m.election.keys.lead(m.id, m.reign, s, max(keptTerm, m.ttl()))
}

// Due writes down what Redis has to know.
func (m *member) Due(time.Duration) {
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return
	}
	call := m.leadCall(m.said)
	if m.reign.term == 0 {
		call = m.election.keys.enter(m.id, m.said.value, m.ttl())
	}
	m.mu.Unlock()
	m.election.core.Batch.Start(call, pipeline.Normal, m.answered)
}

func (m *member) answered(c *script.Call) {
	pause := m.election.core.Lease
	if c.Err() != nil {
		pause = min(pause/10, time.Second)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.againLocked(pause)
	}
}

func (m *member) againLocked(pause time.Duration) {
	m.election.core.Timers.Set(&m.timer, m.election.core.Clock.Now()+core.Jitter(pause))
}

// lead makes the candidate the leader.
func (m *member) lead(r reign) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reign, m.over = r, false
	m.againLocked(m.election.core.Lease)
}

// say has a value written again from here on, unless a newer one is.
func (m *member) say(s said) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.version > m.said.version {
		m.said = s
	}
}

// stop has nothing written again.
func (m *member) stop() {
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	m.election.core.Timers.Stop(&m.timer)
}

func (m *member) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// leave forgets a candidate that gave up. If that fails its value expires.
func (m *member) leave() {
	m.stop()
	m.send(m.election.keys.leave(m.id))
}

// resigned forgets a leader. If that fails nobody takes it for one: it does not hold the lock.
func (m *member) resigned() {
	m.stop()
	m.send(m.election.keys.resign(m.id))
}

// send sends a call in the background.
func (m *member) send(call *script.Call) {
	m.election.core.Begin()
	m.election.core.Batch.Start(call, pipeline.Urgent, func(*script.Call) { m.election.core.End() })
}
