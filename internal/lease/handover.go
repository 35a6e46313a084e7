package lease

import (
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// HandOver leaves to the settler's last attempts what tries may have been granted whose answers are missing, and the leases
// whose release is under way: their own calls might hear nothing more before the client is gone. It is for Close, once
// nothing new is asked for.
func (r *Registry) HandOver() {
	r.core.Timers.Each(func(t *timer.Timer) bool { // every try has its timer set before it is sent
		if l, ok := t.Task.(*Lease); ok && l.space.Registry == r && l.in(asking) {
			l.space.handOver(l, l.space.takeBack)
		}
		return true
	})
	for _, l := range r.each() {
		if l.yield() {
			l.space.handOver(l, l.space.kind.Release)
		}
	}
}

// handOver has the settler send a call for a lease's owner.
func (s *Space) handOver(l *Lease, call func(key, owner any) *script.Call) {
	e := &errand{space: s}
	e.call = func() *script.Call { return call(l.key, l.owner) }
	e.settles = func(n int64) bool { return n > 0 } // a try may arrive yet
	e.begin(s.core.Clock.Now() + straggler)
}

// takeBack returns the call that undoes a try, whatever came of it.
func (s *Space) takeBack(key, owner any) *script.Call {
	switch {
	case s.apart != nil:
		return s.apart.LeaveAfter(key, owner, 0)
	case s.queued != nil:
		return s.queued.Leave(key, owner)
	}
	return s.kind.Release(key, owner)
}

// yield reports whether a user's release of the lease is under way, which will then not take it for lost.
func (l *Lease) yield() bool {
	sh := l.space.shard(l.name())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.freed || l.state != releasing {
		return false
	}
	l.state = yielded
	return true
}

// in reports whether the lease is in a state.
func (l *Lease) in(s state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == s
}
