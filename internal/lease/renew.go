package lease

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// firstRenewal returns when to renew a lease for the first time: at a random moment of the second half of its period, so
// that leases taken in one burst spread out. Those taken within a thousandth of a period go together: they were made one
// after another, so that a call which renews them finds them close together in memory.
func (s *Space) firstRenewal(sent time.Duration) time.Duration {
	period := s.core.Lease / 3
	taken := sent.Truncate(max(period/1000, time.Millisecond))
	random := maphash.Comparable(s.seed, taken)
	return taken + period/2 + time.Duration(random%uint64(period/2+1)) //nolint:gosec // a lease is not negative
}

// onGrid rounds the time of a renewal down to a grid, so that those that are due at about the same time go together.
func (s *Space) onGrid(at time.Duration) time.Duration {
	return at.Truncate(max(s.core.Lease/96, time.Millisecond))
}

// renewDue sends the renewals of leases that are due together: one call for up to 100 that share a slot.
func (s *Space) renewDue(due []*Lease) {
	var batches map[string][]*Lease
	for _, l := range due {
		if batches == nil {
			batches = make(map[string][]*Lease)
		}
		slot := s.slot(l)
		batch := append(batches[slot], l)
		if len(batch) == cohortSize {
			s.renew(batch)
			batch = nil
		}
		batches[slot] = batch
	}
	for _, batch := range batches {
		s.renew(batch)
	}
}

// slot returns what leases that one call may renew have in common: the same lease and, on a cluster, the same hash tag.
func (s *Space) slot(l *Lease) string {
	l.mu.Lock()
	asked, alone := l.renewAt, l.parted
	l.mu.Unlock()
	slot := ""
	if asked != s.core.Lease {
		slot = strconv.FormatInt(asked.Milliseconds(), 10)
	}
	switch {
	case !s.core.Cluster:
	case alone:
		return "alone|" + l.name()
	default:
		slot += "|" + core.Tag(l.name()) // last: a tag may contain anything
	}
	return slot
}

// renew renews leases that share a slot in one call, and tells each what came of it.
func (s *Space) renew(batch []*Lease) {
	keys, owners := make([]any, 0, len(batch)), make([]any, 0, len(batch))
	leases := make([]*Lease, 0, len(batch))
	sent := s.core.Clock.Now()
	length, apart := time.Duration(0), false
	first := sent + s.renewalLimit() // when to look again: at the first deadline among them at the latest
	for _, l := range batch {
		l.mu.Lock()
		if !l.renews { // an older one was answered meanwhile, and has set the timer
			l.mu.Unlock()
			continue
		}
		if l.state != holding || l.renewAt < time.Millisecond {
			l.endRenewalLocked() // unlocked meanwhile: nothing is renewed after its release began
			l.mu.Unlock()
			continue
		}
		length, apart = l.renewAt, l.parted
		first = min(first, l.nextLocked())
		l.mu.Unlock()
		leases, keys, owners = append(leases, l), append(keys, l.key), append(owners, l.owner)
	}
	if len(leases) == 0 {
		return
	}
	r := &renewal{space: s, leases: leases, sent: sent, length: length}
	r.timer.Task = r
	s.core.Timers.Set(&r.timer, first)
	scattered, ok := s.kind.(Scattered)
	r.divisible = len(leases) > 1 || ok && !apart
	if ok && apart {
		r.start(scattered.RenewApart(keys[0], owners[0], length))
	} else {
		r.start([]*script.Call{s.kind.Renew(keys, owners, length)})
	}
}

// start sends the calls that the renewal takes.
func (r *renewal) start(calls []*script.Call) {
	r.open = len(calls)
	for _, c := range calls {
		r.space.core.Batch.Start(c, pipeline.Urgent, r.heard)
	}
}

// heard takes the answer to one call. A lease is lost with any of its keys.
func (r *renewal) heard(c *script.Call) {
	gone, err := c.Ints()
	r.mu.Lock()
	r.open--
	r.gone = append(r.gone, gone...)
	if err != nil {
		r.err = err
	}
	last := r.open == 0
	gone, err = slices.Compact(r.gone), r.err
	r.mu.Unlock()
	if last {
		r.answer(gone, err)
	}
}

// renewal is one call in flight that renews several leases, or the calls that renew the keys of one.
type renewal struct {
	timer  timer.Timer
	space  *Space
	leases []*Lease
	sent   time.Duration
	length time.Duration

	divisible bool // smaller calls can renew the same

	mu   sync.Mutex // guards the rest
	open int        // calls without an answer
	gone []int64    // places of leases that Redis does not have any more
	err  error
}

// Due has all leases of a renewal looked at, and tried again, that has not been answered in time.
func (r *renewal) Due(time.Duration) {
	for _, l := range r.leases {
		l.renewalOverdue()
	}
}

// renewalLimit is how long one renewal may take before the next one is sent: several fit into a lease.
func (s *Space) renewalLimit() time.Duration { return shareOf(s.core.Lease) }

// shareOf returns how long one of several tries within a lease may take.
func shareOf(lease time.Duration) time.Duration {
	return min(max(lease/10, 20*time.Millisecond), 2*time.Second)
}

// tellRenewed tells the user's hook what came of the renewal of so many leases, of which so many are gone.
func (s *Space) tellRenewed(of, gone int, err error) {
	switch hook := s.core.Hooks.Renewed; {
	case hook == nil:
	case err != nil:
		hook(0, 0, err)
	default:
		hook(of-gone, gone, nil)
	}
}

// answer tells each lease of a renewal what came of it.
func (r *renewal) answer(gone []int64, err error) {
	s, leases := r.space, r.leases
	s.core.Timers.Stop(&r.timer)
	if len(leases) == 1 && len(gone) > 0 {
		err = nil // whatever became of its other keys
	}
	s.tellRenewed(len(leases), len(gone), err)
	if err != nil {
		for _, l := range leases {
			l.renewalFailed(r.divisible && script.Parted(err))
		}
		return
	}
	var fellows *cohort
	if len(leases) == cohortSize && r.length == s.core.Lease {
		fellows = s.newCohort(r.sent)
		defer fellows.begin(r.sent)
	}
	next := 0
	for i, l := range leases {
		if next < len(gone) && gone[next] == int64(i+1) {
			next++
			l.renewalRefused()
			continue
		}
		l.mu.Lock()
		if l.renewedLocked(r.sent, r.length) && (fellows == nil || !fellows.takesLocked(l, i)) {
			l.armLocked()
		}
		l.mu.Unlock()
	}
}

// renewed takes a renewal's answer. sent is when it was sent.
func (l *Lease) renewed(sent, length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewedLocked(sent, length) {
		l.armLocked()
	}
}

// renewedLocked notes that a renewal was answered, and reports whether the timer is to be set for the next one.
func (l *Lease) renewedLocked(sent, length time.Duration) bool {
	if l.cohort != nil { // the answer is late, and a newer one has come
		return false
	}
	l.endRenewalLocked()
	if l.state != holding {
		return false
	}
	l.failed, l.parted = false, false
	l.end = max(l.end, sent+length)
	l.renewAt = l.space.onGrid(sent + l.space.core.Lease/3)
	return true
}

// renewalFailed takes a renewal that got no answer. The next one follows soon, several times within a lease; at once, and
// for this lease alone, where it failed only because others of its slot have moved to another node already.
func (l *Lease) renewalFailed(parted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked()
	l.endRenewalLocked()
	if l.state != holding {
		return
	}
	l.failed = true
	l.renewAt = l.now()
	if parted {
		l.parted = true
	} else {
		pause := max(l.space.core.Lease/24, 5*time.Millisecond)
		l.renewAt += pause*3/4 + rand.N(pause/2)
	}
	l.armLocked()
}

// renewalOverdue gives up waiting for a renewal's answer, which counts if it comes later.
func (l *Lease) renewalOverdue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked()
	if !l.renews || l.state != holding {
		l.endRenewalLocked()
		return
	}
	l.endRenewalLocked()
	l.failed = true
	l.renewAt = l.now()
	l.armLocked()
}

// renewalRefused ends a lease that Redis does not have any more.
func (l *Lease) renewalRefused() {
	l.mu.Lock()
	l.endRenewalLocked()
	l.mu.Unlock()
	l.gone()
}

func (l *Lease) endRenewalLocked() {
	l.renews = false
	if l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
}
