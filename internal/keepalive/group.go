package keepalive

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

const (
	groupSize  = 100           // leases that one call renews
	groupLeast = groupSize / 2 // a group with fewer is dissolved, so that its members find others
)

// group is 1 to 100 leases that are renewed by one call, with one timer. An error or silence dissolves it. The calls of one that
// lasts touch a lease for its name and its owner id only.
//
//	resting → renewing → resting   plain leases, at least half full
//	                   → dissolved
//
// It rests also before its first call.
type group struct {
	timer   timer.Timer
	renewer *Renewer // never changes, like the next one
	of      groupKey // what its members have in common

	mu       sync.Mutex // guards all below, and the place and the state of each member; locked after a lease's mutex
	phase    phase
	sent     time.Duration // the call in flight, or the last one
	end      time.Duration // of all members, since a call was answered
	next     time.Duration // when the timer is due: for the next call, or because the one in flight takes too long
	size     int           // members that have not left
	rounds   uint32        // calls that were answered, but for one that has dissolved the group
	members  []*Member     // in the order of the call; nil where one has left
	left     []departure   // members that have left since the call in flight was sent
	answered chan struct{} // closed when that has an answer, or is given up; made by who waits for it
}

// phase is where a group is in its life.
type phase uint8

const (
	resting   phase = iota
	renewing        // a call is in flight
	dissolved       // its members learn the outcome and are in no group then; left has those of a call that may be answered yet
)

// departure is a lease that has left its group, and its place in the call.
type departure struct {
	member *Member
	place  int
}

// admit makes a lease a member, unless it has changed meanwhile. It returns when the first of its levels ends.
func (g *group) admit(m *Member, now time.Duration) time.Duration {
	l := m.lease()
	mu := l.Mutex()
	mu.Lock()
	defer mu.Unlock()
	of, ends, ok := m.groupKey(now)
	if !ok || of != g.of {
		l.ArmLocked()
		return Never
	}
	g.mu.Lock()
	m.group, m.state = g, fine
	m.place = uint8(len(g.members)) //nolint:gosec // below groupSize
	g.members = append(g.members, m)
	g.size++
	g.mu.Unlock()
	if g.of.Plain {
		g.renewer.core.Timers.Stop(&m.Timer) // the group's timer is all it needs
	} else {
		l.ArmLocked()
	}
	return ends
}

// leaveLocked takes a member out.
func (g *group) leaveLocked(m *Member) {
	switch g.phase {
	case renewing:
		g.left = append(g.left, departure{m, int(m.place)})
		g.members[m.place] = nil
		g.size--
		m.state = departed
	case resting:
		g.members[m.place] = nil
		if g.size--; g.size == 0 {
			g.renewer.core.Timers.Stop(&g.timer)
		}
		m.group, m.state = nil, fine
	case dissolved: // the outcome of the call is about to follow
		m.state = departed
	}
}

// Due sends the next renewal. It dissolves a group that has become small, or that had no answer in time.
func (g *group) Due(now time.Duration) {
	g.mu.Lock()
	deadline := g.end - core.Margin(g.of.Lease)
	if g.phase == dissolved || now < g.next { // an answer has moved it meanwhile
		g.mu.Unlock()
		return
	}
	if g.phase == resting && g.size >= groupLeast && now < deadline {
		g.mu.Unlock()
		g.renew(deadline)
		return
	}
	inFlight := g.phase == renewing
	all := g.dissolveLocked()
	if inFlight {
		g.left = all // an answer that comes later counts
	}
	g.mu.Unlock()
	o := outcome{next: now}
	if inFlight {
		o.state = failed
	}
	for _, d := range all {
		d.member.renewed(g, o)
	}
}

// renew sends the call that renews the members. first is when the first of them ends. It runs on the wheel's goroutine.
func (g *group) renew(first time.Duration) {
	e := g.renewer.core
	g.mu.Lock()
	if g.size == 0 { // all have left meanwhile
		g.mu.Unlock()
		return
	}
	calls := g.callsLocked()
	g.phase, g.sent = renewing, e.Clock.Now()
	g.next = min(first, g.sent+Limit(g.of.Lease))
	e.Timers.Set(&g.timer, g.next)
	g.mu.Unlock()
	e.LookForFailover(calls[0].Key())
	g.start(calls)
}

// start sends the calls that renew the members: one, or several for a lease whose keys may be in two places.
func (g *group) start(calls []*script.Call) {
	batch := g.renewer.core.Batch
	if len(calls) == 1 {
		batch.Start(calls[0], pipeline.Urgent, func(c *script.Call) {
			gone, err := c.Ints()
			g.answer(c.Key(), gone, err)
		})
		return
	}
	p := &parts{group: g, open: len(calls)}
	for _, c := range calls {
		batch.Start(c, pipeline.Urgent, p.answer)
	}
}

// parts are calls in flight that renew the keys of one lease.
type parts struct {
	group *group

	mu   sync.Mutex // guards the rest
	open int        // calls without an answer
	gone []int64
	err  error
}

// answer takes the answer to one of the calls. A lease is lost with any of its keys.
func (p *parts) answer(c *script.Call) {
	gone, err := c.Ints()
	p.mu.Lock()
	p.open--
	if len(gone) > 0 {
		p.gone = gone[:1]
	}
	if err != nil {
		p.err = err
	}
	last := p.open == 0
	gone, err = p.gone, p.err
	p.mu.Unlock()
	switch {
	case !last:
	case len(gone) > 0:
		p.group.answer(c.Key(), gone, nil) // whatever became of its other keys
	default:
		p.group.answer(c.Key(), nil, err)
	}
}

// callsLocked closes the gaps between the members and returns the calls that renew them.
func (g *group) callsLocked() []*script.Call {
	room := &g.renewer.room
	keys, owners, members := room.keys[:0], room.owners[:0], g.members[:0]
	for _, m := range g.members {
		if m == nil {
			continue
		}
		m.place = uint8(len(members)) //nolint:gosec // below groupSize
		key, owner := m.lease().Ref()
		members, keys, owners = append(members, m), append(keys, key), append(owners, owner)
	}
	clear(g.members[len(members):])
	g.members = members
	defer func() {
		room.keys, room.owners = keys, owners
		clear(keys)
		clear(owners)
	}()
	calls := &g.renewer.calls
	if calls.Apart != nil && g.of.apart {
		return calls.Apart(g.of.Mode, keys[0], owners[0], g.of.Length)
	}
	return []*script.Call{calls.Renew(g.of.Mode, keys, owners, g.of.Length)}
}

// divisible reports whether smaller calls can renew the same.
func (g *group) divisible(size int) bool {
	return size > 1 || g.renewer.calls.Apart != nil && !g.of.apart
}

// dissolveLocked ends the group, and returns all leases that the call in flight, if there is one, renews. Each is to learn the
// outcome, by renewed.
func (g *group) dissolveLocked() []departure {
	all := g.left
	for place, m := range g.members {
		if m != nil {
			all = append(all, departure{m, place})
		}
	}
	g.phase, g.members, g.left, g.size = dissolved, nil, nil, 0
	g.renewer.core.Timers.Stop(&g.timer)
	g.notifyLocked()
	return all
}

// notifyLocked lets those go on who wait for the answer.
func (g *group) notifyLocked() {
	if g.answered != nil {
		close(g.answered)
		g.answered = nil
	}
}

// answer takes what came of a call, one of whose keys is given.
func (g *group) answer(key string, gone []int64, err error) {
	lost := g.refuse(gone) // first: the end that moves below is that of the members

	g.mu.Lock()
	size := g.size + len(g.left)
	answered := g.left
	if err == nil && g.lastsLocked() {
		g.phase, g.left = resting, nil
		g.end = max(g.end, g.sent+g.of.Length)
		g.rounds++
		g.restLocked()
		g.notifyLocked()
	} else {
		answered = g.dissolveLocked()
	}
	o := g.outcomeLocked(err, size)
	g.mu.Unlock()

	if o.state != apart {
		g.renewer.core.Events.Renewed(key, size-len(gone), lost, err)
	}
	for _, d := range answered {
		if refused(gone, d.place) {
			d.member.askAgain(g)
		} else {
			d.member.renewed(g, o)
		}
	}
}

// lastsLocked reports whether the group is kept for the next renewal, once it was answered.
func (g *group) lastsLocked() bool {
	return g.phase == renewing && g.of.Plain && g.of.Length == g.of.Lease && g.size >= groupLeast
}

// refused reports whether the places, counted from 1, have this one, counted from 0.
func refused(places []int64, place int) bool { return slices.Contains(places, int64(place)+1) }

// refuse ends the members at the given places, counted from 1. It returns how many were held.
func (g *group) refuse(places []int64) (lost int) {
	if len(places) == 0 {
		return 0
	}
	g.mu.Lock()
	var gone []*Member
	for place, m := range g.members {
		if m != nil && refused(places, place) {
			gone = append(gone, m)
		}
	}
	g.mu.Unlock()
	for _, m := range gone {
		if m.lease().Gone() {
			lost++
		}
	}
	return lost
}

// restLocked sets the timer for the next call: not quite a period after the last one, by a random part of it, so that calls
// which a busy moment has pushed together part again. The times are on a grid, a fine one: a few groups that share a pipeline
// cost much less than each alone.
func (g *group) restLocked() {
	e := g.renewer.core
	period := g.of.Lease / 3
	g.next = (g.sent + period - rand.N(period/32+1)).Truncate(max(period/500, time.Millisecond))
	e.Timers.Set(&g.timer, g.next)
}

// outcome is what came of a call, for a lease that it renewed.
type outcome struct {
	end   time.Duration // of the lease; 0 if it was not renewed
	next  time.Duration // when to renew it again
	state memberState   // fine if it was renewed
}

// outcomeLocked judges the answer to a call. An error is followed by another attempt soon, several times within a lease; at once, and for each
// lease alone, where others may have caused it: of the slot some have moved to another node already, or the user may not touch some.
func (g *group) outcomeLocked(err error, size int) outcome {
	e := g.renewer.core
	switch {
	case err == nil:
		return outcome{end: g.sent + g.of.Length, next: onGrid(g.sent+g.of.Lease/3, g.of.Lease)}
	case g.divisible(size) && (script.Parted(err) || script.Mixed(err)):
		return outcome{next: e.Clock.Now(), state: apart}
	}
	return outcome{next: e.Clock.Now() + core.Jitter(max(g.of.Lease/24, 5*time.Millisecond)), state: failed}
}

// until returns when the members end, as far as calls were answered, and how many of those kept the group.
func (g *group) until() (end time.Duration, rounds uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end, g.rounds
}
