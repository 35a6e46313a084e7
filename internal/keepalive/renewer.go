package keepalive

import (
	"hash/maphash"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// Renewer renews the leases of one kind. It is safe for concurrent use.
type Renewer struct {
	core  *core.Core
	calls Calls
	seed  maphash.Seed
	due   *timer.Batch[*Member]
	room  room
}

// Calls make the calls that renew.
type Calls struct {
	// Renew sets the lease of locks that share a slot, each if its owner holds it. Its reply lists the positions, from 1, of those that are
	// lost. It must not keep the slices.
	Renew func(mode Mode, keys, owners []any, lease time.Duration) *script.Call
	// Apart, which is optional, renews one lease of several keys by calls of one key each, whose replies are as that of Renew. While a slot
	// moves to another node the keys may be in two places: then Renew is refused.
	Apart func(mode Mode, key, owner any, lease time.Duration) []*script.Call
}

// room is where the arguments of a call are put together, one call after another: on the wheel's goroutine alone. Calls for
// very many leases would leave as much garbage as those take themselves within a few minutes.
type room struct{ keys, owners []any }

// New returns a renewer of leases on a client's wheel.
func New(c *core.Core, calls Calls) *Renewer {
	r := &Renewer{core: c, calls: calls, seed: maphash.MakeSeed()}
	r.due = timer.NewBatch(c.Timers, r.renewDue)
	return r
}

// Begin has a lease renewed that is asked for now, and ends after length. Renewals set it to lease. It sets no timer.
func (r *Renewer) Begin(m *Member, sent, length, lease time.Duration) {
	m.end, m.next = sent+length, r.first(sent, lease)
}

// Renew renews a lease that is due, together with the others that are. Its timer stays stopped until a group has taken the lease. It
// is for the wheel's goroutine.
func (r *Renewer) Renew(m *Member) { r.due.Add(m) }

// groupKey is what the members of a group have in common.
type groupKey struct {
	CallKey
	apart bool // the group has one member, which is renewed key by key
}

// renewDue makes groups of leases that are due together.
func (r *Renewer) renewDue(due []*Member) {
	now := r.core.Clock.Now()
	groups := map[groupKey][]*Member{}
	for _, m := range due {
		l := m.lease()
		mu := l.Mutex()
		mu.Lock()
		of, _, ok := m.groupKey(now)
		if !ok { // it has changed since it was due, or its end is near
			l.ArmLocked()
		}
		mu.Unlock()
		if !ok {
			continue
		}
		groups[of] = append(groups[of], m)
		if of.apart || len(groups[of]) == groupSize {
			r.renewTogether(of, groups[of], now)
			delete(groups, of)
		}
	}
	for of, members := range groups {
		r.renewTogether(of, members, now)
	}
}

// renewTogether makes a group of leases and renews it.
func (r *Renewer) renewTogether(of groupKey, members []*Member, now time.Duration) {
	g := &group{renewer: r, of: of, members: make([]*Member, 0, len(members))}
	g.timer.Task = g
	first := Never
	for _, m := range members {
		first = min(first, g.admit(m, now))
	}
	if first != Never {
		g.renew(first)
	}
}

// first returns when to renew a lease for the first time: at a random moment of the second half of its period, so
// that leases taken in one burst spread out. Those taken within a thousandth of a period go together: they were made one
// after another, so that a call which renews them finds them close together in memory.
func (r *Renewer) first(sent, lease time.Duration) time.Duration {
	period := lease / 3
	taken := sent.Truncate(max(period/1000, time.Millisecond))
	random := maphash.Comparable(r.seed, taken)
	return taken + period/2 + time.Duration(random%uint64(period/2+1)) //nolint:gosec // a lease is not negative
}

// onGrid rounds the time of a renewal down to a grid, so that those that are due at about the same time go together.
func onGrid(at, lease time.Duration) time.Duration {
	return at.Truncate(max(lease/96, time.Millisecond))
}

// Limit returns how long one renewal of a lease may take before the next one is sent: several fit into it.
func Limit(lease time.Duration) time.Duration {
	return min(max(lease/10, 20*time.Millisecond), 2*time.Second)
}
