package lease

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// stand is the place in Redis of a call that waits, for kinds that know their waiters there. It has one owner id through
// all tries of the call. A try that got no answer is repeated under the same id, and takes over what the first one got.
type stand struct {
	space *Space
	name  Name
	owner any
	limit time.Duration // of the whole wait; 0 for none
	asked bool          // Redis may know of it; for the call's own goroutine

	mu    sync.Mutex    // guards the rest
	open  int           // tries without an answer, less those answered late
	until time.Duration // until when one of them, or what was granted, may still have an effect
	job   *settle.Job   // once the call gave up, or its hold has ended
}

// stand returns the place of a call that is about to ask.
func (n *Name) stand(o *Options) *stand {
	return &stand{space: n.space, name: *n, owner: n.space.core.NextOwner(), limit: o.waitLimit()}
}

// failed turns a try's error into what it came to.
func (p *stand) failed(err error, until time.Duration) tried {
	if script.Judge(err) == script.NotDone {
		return tried{err: core.Explain(err), passing: script.Transient(err)}
	}
	p.asked = true
	p.unanswered(until)
	return tried{err: err, passing: true}
}

// unanswered notes a try that may have an effect until then.
func (p *stand) unanswered(until time.Duration) {
	p.mu.Lock()
	p.open++
	p.until = max(p.until, until)
	p.mu.Unlock()
}

// granted notes that the answer to a try was a yes which nobody wants any more, and until when Redis may have the lease.
func (p *stand) granted(until time.Duration) {
	p.mu.Lock()
	p.until = max(p.until, until)
	p.mu.Unlock()
}

// unsure reports whether an earlier try may still have an effect, or have had one.
func (p *stand) unsure() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open > 0 && p.space.core.Clock.Now() < p.until
}

// Late hears of the answer to a try that was given up. It may come before the try's own call knows that it was.
func (p *stand) Late(call *script.Call) {
	if script.Judge(call.Err()) == script.Unknown {
		return
	}
	p.mu.Lock()
	p.open--
	job := p.job
	if p.open > 0 {
		job = nil
	}
	p.mu.Unlock()
	if job != nil {
		job.Now()
	}
}

// leave has Redis forget the waiter, in the background and again until no try of its can have an effect any more.
func (p *stand) leave() {
	if p == nil || !p.asked {
		return
	}
	s := p.space
	p.mu.Lock()
	until := max(p.until, s.core.Clock.Now()+s.core.Lease)
	p.mu.Unlock()
	e := &errand{space: s, call: p.leaving, early: p.unsure, settles: func(int64) bool { return true }}
	job := e.begin(until)
	p.mu.Lock()
	p.job = job
	p.mu.Unlock()
}

func (p *stand) leaving() *script.Call {
	if apart := p.space.apart; apart != nil {
		return apart.LeaveAfter(p.name.key, p.owner, p.limit)
	}
	return p.space.queued.Leave(p.name.key, p.owner)
}
