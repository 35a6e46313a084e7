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
	lease  *Lease // what it asked for
	length time.Duration

	mu   sync.Mutex // guards the rest
	job  *settle.Job
	call *script.Call // finished, before the job was made
}

// failed turns a try's error into what it came to, and begins to settle what is not known.
func (p *phantom) failed(err error) tried {
	s, l := p.lease.space, p.lease
	if script.Judge(err) == script.NotDone {
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
	reply, err := p.lease.space.kind.Acquired(call)
	return err == nil && reply.Granted
}

// newOwner returns a fresh owner id for a try.
func (s *Space) newOwner(o *Options) any {
	if s.pool != nil {
		return s.pool.Together(o.count())
	}
	return s.core.NextOwner()
}
