package locker

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// entry is what Redis knows of a waiting call: its place in the queue of a fair lock, or the mark of a writer that holds new readers
// back. Its id is the owner id of all attempts of the call: one that got no reply is repeated, and takes over what it was granted.
type entry struct {
	name    Name
	id      any
	limit   time.Duration // of the whole wait; 0 for none
	entered bool          // Redis may have it; for the call's own goroutine

	mu    sync.Mutex    // guards the rest
	open  int           // attempts without a reply, less those answered late
	until time.Duration // until when one of them, or what was granted, may still have an effect
	job   *settle.Job   // of leaving
}

// newEntry returns the entry of a call that is about to ask. Close waits until it has left.
func (n *Name) newEntry(o *Options) *entry {
	n.manager.core.Begin()
	n.manager.entries.Add(1)
	id := o.Owner
	if id == "" {
		id = n.manager.core.NextOwner()
	}
	return &entry{name: *n, id: id, limit: o.waitLimit()}
}

// ended is called when the call has ended.
func (e *entry) ended() {
	e.name.manager.entries.Add(-1)
	e.name.manager.core.End()
}

// lost notes an attempt without a reply, which may have an effect until then.
func (e *entry) lost(until time.Duration) {
	e.mu.Lock()
	e.open++
	e.until = max(e.until, until)
	e.mu.Unlock()
}

// unwanted notes that an attempt was granted when nobody wanted it any more, and until when Redis may have the lease.
func (e *entry) unwanted(until time.Duration) {
	e.mu.Lock()
	e.until = max(e.until, until)
	e.mu.Unlock()
}

// unsettled reports whether an earlier attempt may still have an effect, or have had one.
func (e *entry) unsettled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open > 0 && e.name.manager.core.Clock.Now() < e.until
}

// Late takes the reply to an attempt that was given up. It may come before the attempt's own call knows that it was.
func (e *entry) Late(call *script.Call) {
	if script.Judge(call.Err()) == script.Unknown {
		return
	}
	e.mu.Lock()
	e.open--
	job := e.job
	if e.open > 0 {
		job = nil
	}
	e.mu.Unlock()
	if job != nil {
		job.Now()
	}
}

// leave has Redis forget the entry and what it was granted, in the background and until no attempt can have an effect any more.
func (e *entry) leave() {
	if !e.entered {
		return
	}
	m := e.name.manager
	e.mu.Lock()
	until := max(e.until, m.core.Clock.Now()+m.core.Lease)
	e.mu.Unlock()
	job := m.core.Settler.Clean(settle.Cleanup{
		Call:    func() *script.Call { return m.kind.Leave(e.name.key, e.id, e.limit) },
		Early:   e.unsettled,
		Settles: func(*script.Call) bool { return true },
		Until:   until,
	})
	e.mu.Lock()
	e.job = job
	e.mu.Unlock()
}
