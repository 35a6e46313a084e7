package lease

import (
	"hash/maphash"
	"math/rand/v2"
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

// group is 1 to 100 leases that are renewed by one call, with one timer. Every lease is renewed as the member of a group. A
// group of plain leases lasts while it is at least half full: its calls touch a lease for its name and its owner id only.
//
// All else that is done to a lease takes it out of its group first, with leaveLocked. An error or silence dissolves the group.
type group struct {
	timer   timer.Timer
	manager *Manager      // never changes, like the next one
	of      kindred       // what its members have in common
	length  time.Duration // the lease that is asked for; never changes

	mu       sync.Mutex // guards all below, and the place of each member; locked after a lease's mu
	phase    phase
	sent     time.Duration // the call in flight, or the last one
	end      time.Duration // of all members, since a call was answered
	next     time.Duration // when the timer is due: for the next call, or because the one in flight takes too long
	size     int           // members that have not left
	members  []*Lease      // in the order of the call; nil where one has left
	left     []departure   // members that have left since the call in flight was sent
	answered chan struct{} // closed when that has an answer, or is given up; made by who waits for it
}

// phase is where a group is in its life.
type phase uint8

const (
	resting   phase = iota
	renewing        // a call is in flight
	dissolved       // its members are no longer in it; left has those of a call that may be answered yet
)

// departure is a lease that has left its group, and its place in the call.
type departure struct {
	lease *Lease
	place int
}

// renewal is where a lease is in its renewal.
type renewal uint8

const (
	renewalFine     renewal = iota // it is a member of a group, or due later; its last renewal succeeded
	renewalDeparted                // it has left its group, whose call is in flight
	renewalFailed                  // the last call got an error or no reply
	renewalApart                   // as well; the next call renews this lease alone, key by key
)

// kindred is what leases have in common that one call may renew.
type kindred struct {
	length time.Duration // the lease that is asked for
	mode   Mode          // Read if they have levels of reading
	tag    string        // on a cluster: decides the slot
	plain  bool          // one renewed level is all there is to each
	alone  bool          // each is renewed by a call of its own
}

// kindredLocked returns with which others a lease may be renewed; false if it is not to be renewed now.
func (l *Lease) kindredLocked(now time.Duration) (kindred, bool) {
	if l.state != holding || !l.wantsRenewalLocked(now) {
		return kindred{}, false
	}
	h := l.levels
	k := kindred{length: l.lengthLocked(now), alone: l.renewal == renewalApart}
	k.plain = h.next == nil && h.fixed == 0 && h.limit == 0 && !l.ops.busy()
	if l.countLocked().Read > 0 {
		k.mode = Read
	}
	if l.manager.core.Cluster {
		k.tag = core.Tag(l.name())
	}
	return k, k.length >= time.Millisecond
}

// renewDue renews leases that are due together: up to 100 that one call may renew form a group. It runs on the wheel's
// goroutine.
func (s *Manager) renewDue(due []*Lease) {
	now := s.core.Clock.Now()
	batches := map[kindred][]*Lease{}
	for _, l := range due {
		l.mu.Lock()
		of, ok := l.kindredLocked(now)
		l.mu.Unlock()
		if !ok {
			continue
		}
		batches[of] = append(batches[of], l)
		if of.alone || len(batches[of]) == groupSize {
			s.renewTogether(of, batches[of], now)
			delete(batches, of)
		}
	}
	for of, batch := range batches {
		s.renewTogether(of, batch, now)
	}
}

// renewTogether makes a group of leases and renews it.
func (s *Manager) renewTogether(of kindred, batch []*Lease, now time.Duration) {
	g := &group{manager: s, of: of, length: of.length, members: make([]*Lease, 0, len(batch))}
	g.timer.Task = g
	first := never
	for _, l := range batch {
		first = min(first, g.admit(l, now))
	}
	if first != never {
		g.renew(first)
	}
}

// admit makes a lease a member, unless it has changed meanwhile. It returns when the first of its levels ends.
func (g *group) admit(l *Lease, now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of, ok := l.kindredLocked(now); !ok || of != g.of {
		if l.state == holding {
			l.armLocked()
		}
		return never
	}
	g.mu.Lock()
	l.group, l.renewal = g, renewalFine
	l.place = uint8(len(g.members)) //nolint:gosec // below groupSize
	g.members = append(g.members, l)
	g.size++
	g.mu.Unlock()
	first := l.nextLocked()
	if g.of.plain {
		l.manager.core.Timers.Stop(&l.timer) // the group's timer is all it needs
	} else {
		l.armLocked()
	}
	return first
}

// leaveLocked takes a lease out of its group, if it is in one: it then has its own end and its own timer. The caller has the
// lease's mu.
func (l *Lease) leaveLocked() {
	g := l.group
	if g == nil {
		return
	}
	g.mu.Lock()
	if l.renewal == renewalDeparted {
		g.mu.Unlock()
		return
	}
	l.end, l.renewAt = max(l.end, g.end), g.manager.onGrid(g.next)
	switch g.phase {
	case renewing:
		g.left = append(g.left, departure{l, int(l.place)})
		g.members[l.place] = nil
		g.size--
		l.renewal = renewalDeparted
	case resting:
		g.members[l.place] = nil
		if g.size--; g.size == 0 {
			g.manager.core.Timers.Stop(&g.timer)
		}
		l.group, l.renewal = nil, renewalFine
	case dissolved: // renewalEnded will follow
		l.group, l.renewal = nil, renewalFine
	}
	g.mu.Unlock()
	l.armLocked()
}

// untilLocked returns when Redis ends the lease, as far as this side knows.
func (l *Lease) untilLocked() time.Duration {
	g := l.group
	if g == nil {
		return l.end
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.renewal == renewalDeparted {
		return l.end
	}
	return max(l.end, g.end)
}

// freshLocked reports whether no renewal is in flight, and the last one did not fail.
func (l *Lease) freshLocked() bool { return l.group == nil && l.renewal == renewalFine }

// renewalLocked returns a channel that is closed when the renewal in flight has an answer, or is given up; nil if none is.
func (l *Lease) renewalLocked() <-chan struct{} {
	g := l.group
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

// Due sends the next renewal. It dissolves a group that has become small, or that had no answer in time.
func (g *group) Due(now time.Duration) {
	s := g.manager
	g.mu.Lock()
	deadline := g.end - margin(s.core.Lease)
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
		o.with = renewalFailed
	}
	for _, m := range all {
		m.lease.renewalEnded(g, o)
	}
}

// renew sends the call that renews the members. first is when the first of them ends. It runs on the wheel's goroutine.
func (g *group) renew(first time.Duration) {
	s := g.manager
	g.mu.Lock()
	if g.size == 0 { // all have left meanwhile
		g.mu.Unlock()
		return
	}
	calls := g.callsLocked()
	g.phase, g.sent = renewing, s.core.Clock.Now()
	g.next = min(first, g.sent+s.renewalLimit())
	s.core.Timers.Set(&g.timer, g.next)
	g.mu.Unlock()
	g.start(calls)
}

// start sends the calls that renew the members: one, or several for a lease whose keys may be in two places.
func (g *group) start(calls []*script.Call) {
	batch := g.manager.core.Batch
	if len(calls) == 1 {
		batch.Start(calls[0], pipeline.Urgent, func(c *script.Call) { g.answer(c.Ints()) })
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
		p.group.answer(gone, nil) // whatever became of its other keys
	default:
		p.group.answer(nil, err)
	}
}

// callsLocked closes the gaps between the members and returns the calls that renew them.
func (g *group) callsLocked() []*script.Call {
	room := &g.manager.room
	keys, owners, members := room.keys[:0], room.owners[:0], g.members[:0]
	for _, l := range g.members {
		if l == nil {
			continue
		}
		l.place = uint8(len(members)) //nolint:gosec // below groupSize
		members = append(members, l)
		keys, owners = append(keys, l.key), append(owners, l.owner)
	}
	clear(g.members[len(members):])
	g.members = members
	defer func() {
		room.keys, room.owners = keys, owners
		clear(keys)
		clear(owners)
	}()
	if apart := g.manager.kind.RenewApart; apart != nil && g.of.alone {
		return apart(g.of.mode, keys[0], owners[0], g.length)
	}
	return []*script.Call{g.manager.kind.Renew(g.of.mode, keys, owners, g.length)}
}

// divisible reports whether smaller calls can renew the same.
func (g *group) divisible(size int) bool {
	return size > 1 || g.manager.kind.RenewApart != nil && !g.of.alone
}

// room is where the arguments of a call are put together, one call after another: on the wheel's goroutine alone. Calls for
// very many leases would leave as much garbage as those take themselves within a few minutes.
type room struct{ keys, owners []any }

// dissolveLocked ends the group, and returns all leases that the call in flight, if there is one, renews. Each is to be passed to
// renewalEnded.
func (g *group) dissolveLocked() []departure {
	all := g.left
	for place, l := range g.members {
		if l != nil {
			all = append(all, departure{l, place})
		}
	}
	g.phase, g.members, g.left, g.size = dissolved, nil, nil, 0
	g.manager.core.Timers.Stop(&g.timer)
	g.tellLocked()
	return all
}

// tellLocked lets those go on who wait for the answer.
func (g *group) tellLocked() {
	if g.answered != nil {
		close(g.answered)
		g.answered = nil
	}
}

// answer takes what came of a call.
func (g *group) answer(gone []int64, err error) {
	s := g.manager
	g.refuse(gone) // first: the end that moves below is that of the members

	g.mu.Lock()
	size := g.size + len(g.left)
	answered := g.left
	if err == nil && g.phase == renewing && g.of.plain && g.length == s.core.Lease && g.size >= groupLeast {
		g.phase, g.left = resting, nil
		g.end = max(g.end, g.sent+g.length)
		g.restLocked()
		g.tellLocked()
	} else {
		answered = g.dissolveLocked()
	}
	r := g.outcomeLocked(err, size)
	g.mu.Unlock()

	s.notifyRenewed(size, len(gone), err)
	for _, m := range answered {
		m.lease.renewalEnded(g, r)
	}
}

// refuse ends the members at the given places, counted from 1.
func (g *group) refuse(places []int64) {
	if len(places) == 0 {
		return
	}
	refused := make(map[int]bool, len(places))
	for _, place := range places {
		refused[int(place)-1] = true
	}
	g.mu.Lock()
	var gone []*Lease
	for place, l := range g.members {
		if l != nil && refused[place] {
			gone = append(gone, l)
		}
	}
	for _, m := range g.left {
		if refused[m.place] {
			gone = append(gone, m.lease)
		}
	}
	g.mu.Unlock()
	for _, l := range gone {
		l.gone()
	}
}

// restLocked sets the timer for the next call: not quite a period after the last one, by a random part of it, so that calls
// which a busy moment has pushed together part again. The times are on a grid, a fine one: a few groups that share a pipeline
// cost much less than each alone.
func (g *group) restLocked() {
	period := g.manager.core.Lease / 3
	g.next = (g.sent + period - rand.N(period/32+1)).Truncate(max(period/500, time.Millisecond))
	g.manager.core.Timers.Set(&g.timer, g.next)
}

// outcome is what came of a call, for a lease that it renewed.
type outcome struct {
	end  time.Duration // of the lease; 0 if it was not renewed
	next time.Duration // when to renew it again
	with renewal       // renewalFine if it was renewed
}

// outcomeLocked judges the answer to a call. An error is followed by another attempt soon, several times within a lease; at once, and for each
// lease alone, where it came only because others of the slot have moved to another node already.
func (g *group) outcomeLocked(err error, size int) outcome {
	s := g.manager
	switch {
	case err == nil:
		return outcome{end: g.sent + g.length, next: s.onGrid(g.sent + s.core.Lease/3)}
	case g.divisible(size) && script.Parted(err):
		return outcome{next: s.core.Clock.Now(), with: renewalApart}
	}
	pause := max(s.core.Lease/24, 5*time.Millisecond)
	return outcome{next: s.core.Clock.Now() + pause*3/4 + rand.N(pause/2), with: renewalFailed}
}

// renewalEnded takes what came of a call that renewed the lease. If that is late, the lease may be in another group by now.
func (l *Lease) renewalEnded(g *group, r outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == holding {
		l.end = max(l.end, r.end)
	}
	if l.group != g {
		return
	}
	if l.renewal != renewalDeparted { // then it knows its own end, which may be sooner
		l.end = max(l.end, g.until())
	}
	l.group, l.renewal, l.renewAt = nil, r.with, r.next
	if l.state == holding {
		l.armLocked()
	}
}

// until returns when the members end, as far as calls were answered.
func (g *group) until() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end
}

// firstRenewal returns when to renew a lease for the first time: at a random moment of the second half of its period, so
// that leases taken in one burst spread out. Those taken within a thousandth of a period go together: they were made one
// after another, so that a call which renews them finds them close together in memory.
func (s *Manager) firstRenewal(sent time.Duration) time.Duration {
	period := s.core.Lease / 3
	taken := sent.Truncate(max(period/1000, time.Millisecond))
	random := maphash.Comparable(s.seed, taken)
	return taken + period/2 + time.Duration(random%uint64(period/2+1)) //nolint:gosec // a lease is not negative
}

// onGrid rounds the time of a renewal down to a grid, so that those that are due at about the same time go together.
func (s *Manager) onGrid(at time.Duration) time.Duration {
	return at.Truncate(max(s.core.Lease/96, time.Millisecond))
}

// renewalLimit is how long one renewal may take before the next one is sent: several fit into a lease.
func (s *Manager) renewalLimit() time.Duration { return shareOf(s.core.Lease) }

// shareOf returns how long one of several tries within a lease may take.
func shareOf(lease time.Duration) time.Duration {
	return min(max(lease/10, 20*time.Millisecond), 2*time.Second)
}

// notifyRenewed calls the user's hook after a renewal of so many leases, of which so many were lost.
func (s *Manager) notifyRenewed(of, gone int, err error) {
	switch hook := s.core.Hooks.Renewed; {
	case hook == nil:
	case err != nil:
		hook(0, 0, err)
	default:
		hook(of-gone, gone, nil)
	}
}
