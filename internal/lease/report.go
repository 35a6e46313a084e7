package lease

import (
	"github.com/redlatch/redlatch/internal/presence"
)

// modeNames are what modes are called in reports.
var modeNames = [...]string{Write: "write", Read: "read"} //nolint:gochecknoglobals // a constant in all but name

// Report returns what there is to say of the lease; false for one that is not held.
func (l *Lease) Report() (info presence.Hold, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != holding {
		return info, false
	}
	k, clock := l.manager.kind, l.manager.core.Clock
	info = presence.Hold{Kind: k.Name, Name: l.user(), Owner: l.Owner(), Since: clock.Time(l.since), Renewed: l.member.Times()}
	now := clock.Now()
	for h := l.levels; h != nil; h = h.next {
		info.Levels++
		if k.Modes && (info.Mode == "" || h.mode == Write) {
			info.Mode = modeNames[h.mode]
		}
		info.Left = max(info.Left, h.deadlineLocked()-now)
	}
	if first := l.firstLocked(); first != nil {
		info.Site = first.site.String()
	}
	return info, true
}

// firstLocked returns the first of the levels; nil if there is none.
func (l *Lease) firstLocked() (first *Hold) {
	for h := l.levels; h != nil; h = h.next {
		first = h
	}
	return first
}

// endingLocked keeps of a level that ends what is to be said of the lease.
func (l *Lease) endingLocked(h *Hold) {
	if h != nil {
		l.site, l.part = h.site, h.part
	}
}
