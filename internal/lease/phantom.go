package lease

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// straggler is how long after it was given up a try may still leave: go-redis waits for its connection meanwhile.
const straggler = 4 * time.Second

// phantom is a try that nobody waits for any more. It may have been granted, or may be granted yet: a request that was
// given up can arrive later than a release that is sent after it. So a release that freed something settles it, and
// "not held" does not, until the lease asked for has passed.
type phantom struct {
	lease    *Lease // what it asked for
	length   time.Duration
	together Together // that read the answer of a script which asked for several; nil for one

	mu   sync.Mutex // guards the rest
	job  *settle.Job
	call *script.Call // finished, before the job was made
}

// failed turns a try's error into what it came to, and begins to settle what is not known.
func (p *phantom) failed(err error) tried {
	s, l := p.lease.space, p.lease
	if script.Judge(err) == script.NotDone {
		s.unreserve(l.key, l.owner)
		return tried{err: core.Explain(err), passing: script.Transient(err)}
	}
	until := s.core.Clock.Now() + p.length + straggler
	job := s.settleRelease(unsettled{key: l.key, owner: l.owner, until: until})
	p.mu.Lock()
	p.job = job
	call := p.call
	p.mu.Unlock()
	if call != nil {
		p.judge(job, call)
	}
	return tried{err: err, passing: true}
}

// Late hears of the answer to a try that was given up.
func (p *phantom) Late(call *script.Call) {
	p.mu.Lock()
	p.call = call
	job := p.job
	p.mu.Unlock()
	if job != nil {
		p.judge(job, call)
	}
}

func (p *phantom) judge(job *settle.Job, call *script.Call) {
	switch script.Judge(call.Err()) {
	case script.Unknown:
	case script.NotDone:
		job.Settled()
	case script.Done:
		if p.granted(call) {
			job.Now()
			return
		}
		job.Settled()
	}
}

// granted reports whether an answer is a yes.
func (p *phantom) granted(call *script.Call) bool {
	if p.together != nil {
		busy, err := p.together.AcquiredAll(call)
		return err == nil && busy < 0
	}
	reply, err := p.lease.space.kind.Acquired(call)
	return err == nil && reply.Granted
}

// reserve returns the owner id for a try: a fresh one, or the caller's own if nobody in this client is using it.
func (s *Space) reserve(key any, o *Options) (owner any, ok bool) {
	switch {
	case o.Owner != nil:
	case o.Several != nil:
		return s.pool.Together(o.Several.Count), true
	case s.owners != nil:
		return s.owners.NewOwner(), true
	default:
		return s.core.NextOwner(), true
	}
	if !s.owned.take(s.ownID(key, *o.Owner)) {
		return nil, false
	}
	return *o.Owner, true
}

// unreserve lets an owner id be used again, once nothing that was sent under it can have an effect any more.
func (s *Space) unreserve(key, owner any) {
	haunted, _ := s.owned.get(s.ownID(key, owner))
	if haunted.unsure() {
		haunted.leave()
		return
	}
	s.free(key, owner)
}

// free lets an owner id be used again at once.
func (s *Space) free(key, owner any) {
	s.disown(key, owner)
	if s.owners != nil {
		s.owners.Free(owner)
	}
}

// drop forgets an owner id under which something may arrive yet, and for which nobody can wait. One of a pool is not used
// again. The caller's own is, or its lock could not be taken any more.
func (s *Space) drop(key, owner any) {
	s.disown(key, owner)
	if s.apart != nil {
		s.apart.Drop(owner)
	}
}

func (s *Space) disown(key, owner any) { s.owned.free(s.ownID(key, owner)) }

// ownID returns the name and the id under which Owned knows an owner.
func (s *Space) ownID(key, owner any) (string, ownID) {
	name, _ := key.(string)
	id, _ := owner.(string)
	return name, ownID{id, s.beside}
}
