package locker

import "github.com/redlatch/redlatch/internal/core"

// Holds returns the leases that are held.
func (ns *Namespace) Holds() []core.HoldInfo {
	var all []core.HoldInfo
	for _, l := range ns.leases() {
		if info, held := l.Report(); held {
			all = append(all, info)
		}
	}
	return all
}

// Waits returns the calls that have begun to wait.
func (ns *Namespace) Waits() []core.WaitInfo {
	var all []core.WaitInfo
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
func (w *Waiter) reportLocked(to []core.WaitInfo) []core.WaitInfo {
	if w.since == 0 {
		return to
	}
	c := w.manager.core
	return append(to, core.WaitInfo{Kind: w.manager.kind.Name, Name: w.manager.kind.User(c, w.queue.key), Since: c.Clock.Time(w.since), Site: w.options.Site.String()})
}
