package lease

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/watchdog"
	"github.com/redlatch/redlatch/internal/wheel"
)

// Slot returns what leases that one call may renew have in common: the same lease and, on a cluster, the same hash tag.
func (s *Space) Slot(subject watchdog.Subject) string {
	l, _ := subject.(*Lease)
	slot := ""
	if s.engine.Cluster {
		slot = engine.Tag(l.name())
	}
	if asked := l.asked; asked != s.engine.Lease {
		slot += "|" + strconv.FormatInt(asked.Milliseconds(), 10)
	}
	return slot
}

// Renew renews leases that share a slot in one call, and tells each what came of it.
func (s *Space) Renew(subjects []watchdog.Subject) {
	keys, owners := make([]any, 0, len(subjects)), make([]any, 0, len(subjects))
	leases := make([]*Lease, 0, len(subjects))
	sent := s.engine.Clock.Now()
	length := time.Duration(0)
	first := sent + s.renewalLimit() // when to look again: at the first deadline among them at the latest
	for _, subject := range subjects {
		l, _ := subject.(*Lease)
		l.mu.Lock()
		if l.state != holding || l.asked < time.Millisecond {
			l.endRenewalLocked() // unlocked meanwhile: nothing is renewed after its release began
			l.mu.Unlock()
			continue
		}
		length = l.asked
		first = min(first, l.nextLocked())
		l.mu.Unlock()
		leases, keys, owners = append(leases, l), append(keys, l.key), append(owners, l.owner)
	}
	if len(leases) == 0 {
		return
	}
	r := &renewal{space: s, leases: leases, sent: sent, length: length}
	r.timer.Owner = r
	s.engine.Watchdog.Set(&r.timer, first)
	s.engine.Batch.Start(s.kind.Renew(keys, owners, length), batch.Urgent, r.answer)
}

// renewal is one call under way that renews several leases.
type renewal struct {
	timer  wheel.Timer
	space  *Space
	leases []*Lease
	sent   time.Duration
	length time.Duration
}

// Due has all leases of a renewal looked at, and tried again, that has not been answered in time.
func (r *renewal) Due(time.Duration) watchdog.Renewer {
	for _, l := range r.leases {
		l.renewalOverdue()
	}
	return nil
}

// renewalLimit is how long one renewal may take before the next one is sent: several fit into a lease.
func (s *Space) renewalLimit() time.Duration {
	return min(max(s.engine.Lease/6, 20*time.Millisecond), 2*time.Second)
}

// answer tells each lease of a renewal what came of it.
func (r *renewal) answer(c *script.Call) {
	s, leases := r.space, r.leases
	s.engine.Watchdog.Stop(&r.timer)
	gone, err := c.Ints()
	if f := s.engine.Hooks.Renewed; f != nil {
		f(len(leases)-len(gone), len(gone), err)
	}
	if err != nil {
		for _, l := range leases {
			l.renewalFailed()
		}
		return
	}
	next := 0
	for i, l := range leases {
		if next < len(gone) && gone[next] == int64(i+1) {
			next++
			l.renewalRefused()
			continue
		}
		l.renewed(r.sent, r.length)
	}
}
