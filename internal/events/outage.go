package events

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Trouble logs the first failure of something that is tried until it succeeds, and the first success after that.
type Trouble struct {
	mu    sync.Mutex // guards all
	lasts bool
	since time.Duration
}

// Note says what came of a try: the line is for the first failure, and over for the end.
func (t *Trouble) Note(e *Events, err error, line, over, kind, name string) {
	now := e.Clock.Now()
	t.mu.Lock()
	since, changed := t.since, t.lasts != (err != nil)
	if changed {
		t.lasts, t.since = err != nil, now
	}
	t.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		e.Logger.Warn(line, "kind", kind, "name", name, "cause", err)
	default:
		e.Logger.Info(over, "kind", kind, "name", name, "length", now-since)
	}
}

// outages are those of nodes on which renewals fail. The first failure is logged, and the first success after it.
type outages struct {
	open atomic.Int32 // length of all
	mu   sync.Mutex   // guards all
	all  []outage
}

// outage is that of the node that has the key: another one after a failover.
type outage struct {
	key   string
	since time.Duration
}

// Renewed says what came of a call that renewed leases or messages, among them that of the key: how many were renewed and how many
// were lost.
func (e *Events) Renewed(key string, renewed, lost int, err error) {
	o := &e.outages
	switch {
	case err != nil && script.Parted(err): // of a slot on the move: what it names is renewed in parts
	case err != nil:
		if o.begins(key, e.Clock.Now(), e.Node) {
			e.Logger.Warn("redlatch: renewals fail", "node", e.Node(key), "cause", err)
		}
	case o.open.Load() > 0:
		if since, ended := o.ended(key, e.Node); ended {
			node, length := e.Node(key), e.Clock.Now()-since
			e.Logger.Info("redlatch: renewals succeed again", "node", node, "length", length)
		}
	}
	if err != nil {
		renewed, lost = 0, 0
	}
	if f := e.Hooks.Renewed; f != nil {
		f(renewed, lost, err)
	}
}

// begins notes that the renewal of a key failed, and reports whether it is the first one on its node.
func (o *outages) begins(key string, now time.Duration, nodeOf func(key string) string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofLocked(nodeOf(key), nodeOf) >= 0 {
		return false
	}
	o.all = append(o.all, outage{key, now})
	o.open.Add(1)
	return true
}

// ended notes that the renewal of a key succeeded, and returns since when they had failed on its node, if they had.
func (o *outages) ended(key string, nodeOf func(key string) string) (since time.Duration, was bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.ofLocked(nodeOf(key), nodeOf)
	if i < 0 {
		return 0, false
	}
	since = o.all[i].since
	o.all = slices.Delete(o.all, i, i+1)
	o.open.Add(-1)
	return since, true
}

func (o *outages) ofLocked(node string, nodeOf func(key string) string) int {
	return slices.IndexFunc(o.all, func(one outage) bool { return nodeOf(one.key) == node })
}
