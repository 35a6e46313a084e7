package locker

import (
	"github.com/redlatch/redlatch/internal/presence"
)

// Holds returns the leases that are held.
func (ns *Namespace) Holds() []presence.Hold {
	var all []presence.Hold
	for _, l := range ns.leases() {
		if info, held := l.Report(); held {
			all = append(all, info)
		}
	}
	return all
}

// Waits returns the calls that have begun to wait.
func (ns *Namespace) Waits() []presence.Wait {
	var all []presence.Wait
	for i := range ns.shards {
		s := &ns.shards[i]
		s.mu.Lock()
		for _, queues := range []map[string]*queue{s.queues, s.readers} {
			for _, q := range queues {
				q.Each(func(call any) {
					w, _ := call.(*Waiter)
					all = w.reportLocked(all)
				})
			}
		}
		for w := range s.alone {
			all = w.reportLocked(all)
		}
		s.mu.Unlock()
	}
	return all
}

// reportLocked adds a call, if it has begun to wait.
func (w *Waiter) reportLocked(to []presence.Wait) []presence.Wait {
	if w.since == 0 {
		return to
	}
	c := w.manager.core
	return append(to, presence.Wait{Kind: w.manager.kind.Name, Name: w.manager.kind.User(c, w.queue.key), Since: c.Clock.Time(w.since), Site: w.options.Site.String()})
}
