package lease

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

const (
	cohortSize  = 100            // leases that one call renews
	cohortLeast = cohortSize / 2 // one with fewer members is dissolved, so that they find others
)

// cohort is leases that were renewed by one call, and that nothing but renewal happens to. They have one end and one timer,
// and are renewed by one call each time, which looks at a lease only for its name and its owner id.
//
// Whatever else is done to a lease takes it out first: leaveLocked puts it into the state that it would have alone. A round
// that fails or gets no answer in time dissolves the cohort in the same way.
type cohort struct {
	timer timer.Timer
	space *Space // never changes

	mu      sync.Mutex         // guards all below, and the place of each member; locked after a lease's mu
	end     time.Duration      // of all members
	next    time.Duration      // when the timer is due: for the next round, or because the one under way takes too long
	joint   *joint             // under way; nil for none
	size    int                // members that have not left
	members [cohortSize]*Lease // in the order of the round's call; nil where one has left
}

// joint is one call that renews a cohort.
type joint struct {
	cohort *cohort
	sent   time.Duration
	size   int      // leases in the call
	left   []leaver // members that left since it was sent; guarded by the cohort's mu
}

// leaver is a lease, and where it stands in a round's call.
type leaver struct {
	lease *Lease
	place int
}

// newCohort returns a cohort without members, of leases that were renewed by a call sent at the given time. Its timer starts
// with begin.
func (s *Space) newCohort(sent time.Duration) *cohort {
	c := &cohort{space: s, end: sent + s.core.Lease, next: sent + s.core.Lease/3}
	c.timer.Task = c
	return c
}

// takesLocked makes a lease that is held, and not being renewed, a member at a place of its own, if one plain level is all
// there is to it. The caller has the lease's mu.
func (c *cohort) takesLocked(l *Lease, place int) bool {
	h := l.levels
	if h == nil || h.next != nil || h.fixed != 0 || h.limit != 0 || l.turn.taken() || l.end > c.end {
		return false
	}
	l.space.core.Timers.Stop(&l.timer)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.cohort, l.place = c, uint8(place) //nolint:gosec // below cohortSize
	c.members[place] = l
	c.size++
	return true
}

// begin starts the timer, once all members have been taken.
func (c *cohort) begin(sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restLocked(sent)
}

// leaveLocked takes a lease out of its cohort, if it is in one. The caller has the lease's mu.
func (l *Lease) leaveLocked() {
	c := l.cohort
	if c == nil {
		return
	}
	c.mu.Lock()
	l.cohort = nil
	l.end, l.renewAt, l.renews = c.end, c.space.onGrid(c.next), c.joint != nil
	c.members[l.place] = nil
	c.size--
	switch {
	case c.joint != nil:
		c.joint.left = append(c.joint.left, leaver{l, int(l.place)})
	case c.size == 0:
		c.space.core.Timers.Stop(&c.timer)
	}
	c.mu.Unlock()
	l.armLocked()
}

// untilLocked returns when Redis ends the lease, as far as this side knows.
func (l *Lease) untilLocked() time.Duration {
	c := l.cohort
	if c == nil {
		return l.end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

// restLocked sets the timer for the round after one that was sent at the given time: not quite a period later, by a random
// part of it, so that rounds which a busy moment has pushed together part again. The times are on a grid, a fine one: a few cohorts
// that share a pipeline cost much less than each alone.
func (c *cohort) restLocked(sent time.Duration) {
	period := c.space.core.Lease / 3
	c.next = (sent + period - rand.N(period/32+1)).Truncate(max(period/500, time.Millisecond))
	if c.size > 0 {
		c.space.core.Timers.Set(&c.timer, c.next)
	} else {
		c.space.core.Timers.Stop(&c.timer)
	}
}

// Due sends the next round. It dissolves a cohort that has become small, or whose round was not answered in time.
func (c *cohort) Due(now time.Duration) {
	s := c.space
	c.mu.Lock()
	if now+time.Millisecond < c.next { // an answer has moved it meanwhile
		c.mu.Unlock()
		return
	}
	late := c.joint != nil
	if late || c.size < cohortLeast || now+time.Millisecond >= c.end-margin(s.core.Lease) {
		all := c.allLocked()
		c.mu.Unlock()
		for _, l := range all {
			if late {
				l.renewalOverdue()
			} else {
				l.leave()
			}
		}
		return
	}
	c.joint = &joint{cohort: c, sent: s.core.Clock.Now(), size: c.size}
	c.next = min(c.end-margin(s.core.Lease), c.joint.sent+s.renewalLimit())
	s.core.Timers.Set(&c.timer, c.next)
	call, answer := c.callLocked(), c.joint.answer
	c.mu.Unlock()
	s.core.Batch.Start(call, pipeline.Urgent, answer)
}

// leave takes a lease out of its cohort, if it is in one.
func (l *Lease) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked()
}

// allLocked returns the members, and those that left since the round under way was sent.
func (c *cohort) allLocked() []*Lease {
	var all []*Lease
	for _, l := range c.members {
		if l != nil {
			all = append(all, l)
		}
	}
	if c.joint != nil {
		for _, e := range c.joint.left {
			all = append(all, e.lease)
		}
	}
	return all
}

// callLocked closes the gaps between the members and returns the call that renews them.
func (c *cohort) callLocked() *script.Call {
	room := &c.space.room
	keys, owners := room.keys[:0], room.owners[:0]
	for i, l := range c.members {
		if l == nil {
			continue
		}
		if place := len(keys); place != i {
			c.members[i], c.members[place], l.place = nil, l, uint8(place) //nolint:gosec // below cohortSize
		}
		keys, owners = append(keys, l.key), append(owners, l.owner)
	}
	call := c.space.kind.Renew(keys, owners, c.space.core.Lease)
	room.keys, room.owners = keys, owners
	clear(keys)
	clear(owners)
	return call
}

// room is where the arguments of a call are put together, one call after another: on the wheel's goroutine alone. A round
// of very many leases would leave as much garbage as they take themselves within a few minutes.
type room struct{ keys, owners []any }

// answer takes what came of a round.
func (r *joint) answer(call *script.Call) {
	c := r.cohort
	gone, err := call.Ints()
	c.space.tellRenewed(r.size, len(gone), err)
	if err != nil {
		r.failed(r.size > 1 && script.Parted(err))
		return
	}
	c.refuse(gone) // first: the end that moves below is that of the members

	c.mu.Lock()
	left := r.left
	c.joint = nil
	c.end = max(c.end, r.sent+c.space.core.Lease)
	c.restLocked(r.sent)
	c.mu.Unlock()
	for _, e := range left {
		if slices.Contains(gone, int64(e.place+1)) {
			e.lease.renewalRefused()
		} else {
			e.lease.renewed(r.sent, c.space.core.Lease)
		}
	}
}

// failed dissolves the cohort after a round that was not answered.
func (r *joint) failed(parted bool) {
	c := r.cohort
	c.mu.Lock()
	all := c.allLocked()
	c.joint = nil
	c.mu.Unlock()
	for _, l := range all {
		l.renewalFailed(parted)
	}
}

// refuse ends the members at the given places, counted from 1.
func (c *cohort) refuse(places []int64) {
	if len(places) == 0 {
		return
	}
	c.mu.Lock()
	var gone []*Lease
	for _, place := range places {
		if place < 1 || place > cohortSize {
			continue
		}
		if l := c.members[place-1]; l != nil {
			gone = append(gone, l)
		}
	}
	c.mu.Unlock()
	for _, l := range gone {
		l.renewalRefused()
	}
}
