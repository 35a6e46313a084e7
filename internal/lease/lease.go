package lease

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/keepalive"
)

// state is where a lease is in its life.
type state uint8

const (
	asking    state = iota // the acquisition is in flight
	holding                // granted
	releasing              // its last level was unlocked; Redis may not know yet
	over                   // released, or never granted
	lost                   // over although nobody released it
)

// Lease is what Redis has granted to this client under one owner id. All its levels share one TTL there.
type Lease struct {
	mu     sync.Mutex       // guards what is not said to be otherwise
	member keepalive.Member // its renewal, its end in Redis and its timer
	levels *Hold            // the live ones, innermost first
	state  state
	reads  bool        // Redis has levels of reading, as far as this side knows
	warned bool        // that a call of this client waits for it; guarded by the listener's guard
	part   bool        // the level that ended last was part of a hold of several locks; as the site
	site   events.Site // where the level that ended last was acquired; never changes once it does not hold

	manager *Manager      // never changes, like key, owner, token and since once it is granted
	key     any           // the lock's name in Redis, a string
	owner   any           // the owner id, a string
	token   int64         // the fencing token; 0 for none
	since   time.Duration // when Redis granted it, for the hand-off budget
	ops     *operations   // of the operations of its levels; made at the first nesting, and then never changes
}

// New returns a lease that is about to be asked for. The key, the lock's name in Redis, and the owner id are strings.
func (m *Manager) New(key, owner any) *Lease {
	l := &Lease{manager: m, key: key, owner: owner}
	l.member.Timer.Task = l
	return l
}

// Listener returns to whom the lease reports.
func (l *Lease) Listener() Listener { return l.manager.listener }

// Name returns the lock's name in Redis.
func (l *Lease) Name() string { s, _ := l.key.(string); return s }

// FirstWarning reports whether it is called for the first time. It is called with the guard held.
func (l *Lease) FirstWarning() bool {
	first := !l.warned
	l.warned = true
	return first
}

// Since returns when Redis granted the lease.
func (l *Lease) Since() time.Duration { return l.since }

// SetOwner changes the owner id of a lease that nobody else looks at yet.
func (l *Lease) SetOwner(owner any) { l.owner = owner }

func (l *Lease) ownerID() string { s, _ := l.owner.(string); return s }

// Owner returns the owner id as users know it.
func (l *Lease) Owner() string {
	if id := l.manager.kind.ID; id != nil {
		return id(l.ownerID())
	}
	return l.ownerID()
}

// user returns the name that the user gave.
func (l *Lease) user() string { return l.manager.kind.User(l.manager.core, l.Name()) }

func (l *Lease) now() time.Duration { return l.manager.core.Clock.Now() }

// Register adds the first level, and sets its timer before its acquisition is sent. It returns the lease
// to ask for.
func (l *Lease) Register(ctx context.Context, t Term, mode Mode, sent time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	length := l.newHoldLocked(ctx, t, mode, sent).length
	l.reads = mode == Read
	l.manager.renewer.Begin(&l.member, sent, length, l.leaseLocked())
	l.manager.core.Timers.Set(&l.member.Timer, l.nextLocked())
	return length
}

// Granted notes that Redis granted the lease, now and with that token. It returns the first level, and whether its deadline is over.
func (l *Lease) Granted(token int64) (first *Hold, late bool) {
	l.token, l.since = token, l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.levels, l.since >= l.levels.deadlineLocked()
}

// GrantedWith notes that the lease was granted together with another one, and returns its first level.
func (l *Lease) GrantedWith(other *Lease) *Hold {
	l.since = other.since
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.levels
}

// Begin has a lease that was granted hold.
func (l *Lease) Begin() {
	l.mu.Lock()
	l.state = holding
	l.ArmLocked()
	l.mu.Unlock()
}

// WhenOver has fn called when the lease is over. It is for a lease that nobody else looks at yet.
func (l *Lease) WhenOver(fn func()) { l.opsLocked().over = fn }

// Unregister takes back Register after an attempt that was not granted.
func (l *Lease) Unregister() {
	l.mu.Lock()
	l.state = over
	l.mu.Unlock()
	l.manager.core.Timers.Stop(&l.member.Timer)
}

// deadlineLocked returns when the first of its levels ends.
func (l *Lease) deadlineLocked() time.Duration {
	first := keepalive.Never
	for h := l.levels; h != nil; h = h.next {
		first = min(first, h.deadlineLocked())
	}
	return first
}

// nextLocked returns when the lease has to be looked at.
func (l *Lease) nextLocked() time.Duration {
	next := l.deadlineLocked()
	if l.renewsLevelLocked() {
		next = min(next, l.member.Next())
	}
	return next
}

// Due ends the levels whose time is over, and has the lease renewed if that is due.
func (l *Lease) Due(now time.Duration) {
	l.mu.Lock()
	if l.state == asking { // an attempt may be in flight for longer than its lease: look again
		l.manager.core.Timers.Set(&l.member.Timer, now+l.manager.core.Lease/3)
	}
	overdue := l.overdueLocked(now)
	l.mu.Unlock()
	if overdue {
		l.expire(now)
	}
	l.mu.Lock()
	due := l.state == holding && l.wantsRenewalLocked(now)
	if !due {
		l.ArmLocked()
	}
	l.mu.Unlock()
	if due { // the timer stays stopped until a group has taken the lease
		l.manager.renewer.Renew(&l.member)
	}
}

// overdueLocked reports whether a level's time is over.
func (l *Lease) overdueLocked(now time.Duration) bool {
	return l.levels == nil || now >= l.deadlineLocked()
}

// expire ends the levels whose time is over, and the lease with the last of them.
func (l *Lease) expire(now time.Duration) {
	l.mu.Lock()
	if l.state != holding {
		l.mu.Unlock()
		return
	}
	l.endingLocked(l.firstLocked())
	cancels, why := l.expireLocked(now)
	ended := l.levels == nil
	if ended {
		l.state = lost
		l.releasePlainlyLocked() // an Unlock that comes too late changes nothing
		l.manager.core.Timers.Stop(&l.member.Timer)
	}
	l.mu.Unlock()
	switch {
	case ended:
		l.manager.listener.Lost(l)
	case cancels != nil:
		l.noteDowngrade()
	}
	cancels.run() // after Lost: whoever is notified finds the lock free here; but before Redis is asked to let others in
	switch {
	case ended:
		l.notifyOver()
		l.SettleRelease(nil) // Redis may still have it, be it for a moment or because a renewal was sent whose reply is missing
		l.notifyLost(why)
	case cancels != nil:
		l.settleLevels()
	}
}

func (l *Lease) wantsRenewalLocked(now time.Duration) bool {
	return now >= l.member.Next() && l.renewsLevelLocked()
}

// renewsLevelLocked reports whether any level is renewed. Then the lease is renewed also while Redis has it for as long as any level can
// last: that is how its loss is noticed.
func (l *Lease) renewsLevelLocked() bool {
	for h := l.levels; h != nil; h = h.next {
		if h.renewedLocked() {
			return true
		}
	}
	return false
}

// Verify looks whether Redis still has the lease: it is renewed at once, if it is renewed at all.
func (l *Lease) Verify() {
	l.mu.Lock()
	l.member.Leave()
	if l.state != holding || l.member.Next() == keepalive.Never { // a renewal is in flight
		l.mu.Unlock()
		return
	}
	if l.renewsLevelLocked() {
		l.member.RenewAt(l.now())
		l.ArmLocked()
		l.mu.Unlock()
		return
	}
	l.opsLocked()
	ask := l.recountLocked(nil) // a lease that is not renewed is asked for in another way
	l.mu.Unlock()
	if ask != nil {
		ask()
	}
}

// leaseLocked is what a renewal sets. A third of it passes between two renewals.
func (l *Lease) leaseLocked() time.Duration {
	if l.ops != nil && l.ops.renewed != 0 {
		return l.ops.renewed
	}
	return l.manager.core.Lease
}

// renewWithLocked has renewals set what a level asks for that is about to begin. They never set less than before: a reply that is on its way
// may be that to a longer one.
func (l *Lease) renewWithLocked(length time.Duration) {
	if before := l.leaseLocked(); length > before || length < before && l.levels == nil {
		l.opsLocked().renewed = length
	}
}

// lengthLocked is the lease that a renewal asks for.
func (l *Lease) lengthLocked(now time.Duration) time.Duration {
	length := time.Duration(0)
	for h := l.levels; h != nil; h = h.next {
		switch {
		case !h.renewedLocked():
		case h.limit == 0:
			return l.leaseLocked()
		default:
			length = max(length, min(l.leaseLocked(), h.limit-now))
		}
	}
	return length
}

// expireLocked ends the levels whose deadline has passed, and returns why the last of them did.
func (l *Lease) expireLocked(now time.Duration) (c cancels, detail string) {
	l.member.Leave()
	for at := &l.levels; *at != nil; {
		h := *at
		if now < h.deadlineLocked() {
			at = &h.next
			continue
		}
		detail = causeNotRenewed
		if h.fixed != 0 || h.limit != 0 {
			detail = causeLeaseEnded
		}
		*at = h.next
		c = append(c, h.endLocked(l.lostCause(detail)))
	}
	return c, detail
}

// Gone ends all levels after Redis said that the owner does not hold the lock. It reports whether there were any.
func (l *Lease) Gone() bool {
	l.mu.Lock()
	if l.state != holding {
		l.mu.Unlock()
		return false
	}
	l.endingLocked(l.firstLocked())
	cancels := l.endAllLocked(func(*Hold) error { return l.lostCause(CauseGone) })
	l.state = lost
	l.manager.core.Timers.Stop(&l.member.Timer)
	l.mu.Unlock()
	l.manager.listener.Lost(l)
	l.notifyOver()
	cancels.run() // after Lost: whoever is notified finds the lock free here
	l.notifyLost(CauseGone)
	return true
}

// notifyOver calls what was to be called when the lease is over.
func (l *Lease) notifyOver() {
	l.mu.Lock()
	ops := l.ops
	l.mu.Unlock()
	if ops != nil && ops.over != nil {
		ops.over()
	}
}

// lostCause is the cause of a context whose lock was lost.
func (l *Lease) lostCause(detail string) error {
	return l.endCause(errs.ErrLost, detail)
}

// notifyLost tells the log and the observer, once those who have the hold's context were told: others wait on this goroutine.
func (l *Lease) notifyLost(detail string) {
	m := l.manager
	loss := events.Loss{
		Kind: m.kind.Name, Name: l.user(), Owner: l.Owner(), Held: l.now() - l.since, Site: l.site.String(), Cause: detail,
	}
	if !l.part {
		m.core.Events.LogLost(m.noun(), loss, l.lostCause(detail))
	}
	m.core.Events.Lost(loss, l.lostCause(detail))
}

// endAllLocked ends every level with the cause that why gives.
func (l *Lease) endAllLocked(why func(*Hold) error) cancels {
	l.member.Leave()
	var c cancels
	for h := l.levels; h != nil; h = h.next {
		c = append(c, h.endLocked(why(h)))
	}
	l.levels = nil
	return c
}

// Closing ends the contexts of all levels, which stay held and renewed until they are unlocked.
func (l *Lease) Closing() {
	l.mu.Lock()
	var c cancels
	for h := l.levels; h != nil; h = h.next {
		c = append(c, h.endContextLocked(l.endCause(errs.ErrClosed, "")))
	}
	l.mu.Unlock()
	c.run()
}

// cancels are functions to be called once no mutex is held.
type cancels []func()

func (c cancels) run() {
	for _, cancel := range c {
		if cancel != nil {
			cancel()
		}
	}
}

// in reports whether the lease is in a state.
func (l *Lease) in(s state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == s
}

// Drain releases a lease that Close found still held.
func (l *Lease) Drain(limit time.Duration) {
	l.mu.Lock()
	if l.state != holding {
		l.mu.Unlock()
		return
	}
	cancels := l.endAllLocked(func(*Hold) error {
		return l.endCause(errs.ErrClosed, "")
	})
	l.state = releasing
	l.manager.core.Timers.Stop(&l.member.Timer)
	l.mu.Unlock()
	cancels.run()
	_, err := l.sendRelease(context.Background(), limit) //nolint:forbidigo // bounded by limit
	if err != nil {
		l.manager.core.Logger.Warn("redlatch: close left a "+l.manager.noun()+" to its lease",
			"kind", l.manager.kind.Name, "name", l.user(), "owner", l.Owner(), "cause", err)
	}
	l.finish(0)
	l.notifyReleased()
}

// finish ends a lease that was released. So many clients were notified of it.
func (l *Lease) finish(notified int) {
	l.notifyOver()
	l.mu.Lock()
	l.state = over
	l.mu.Unlock()
	l.manager.listener.Released(l, notified)
}
