package settle

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// Straggler is how long after it was given up a call may still leave: go-redis waits for its connection meanwhile.
const Straggler = 4 * time.Second

// Sender sends a call and returns at once; done is called with the call when it has finished.
type Sender interface {
	Start(call *script.Call, class pipeline.Class, done func(*script.Call)) bool
}

// Cleanup is a call that is sent in the background until a reply settles the matter.
type Cleanup struct {
	Call    func() *script.Call     // makes the call, for each time it is sent
	Settles func(*script.Call) bool // reports whether a reply without an error settles the matter
	Early   func() bool             // reports whether a call sent now may run before what it takes back; nil for never
	Until   time.Duration           // when it is given up
}

// Clean sends a cleanup now, and again and again until it is settled.
func (s *Settler) Clean(c Cleanup) *Job {
	j := &Job{until: c.Until, most: pauses[len(pauses)-1]}
	j.attempt = func(report func(settled bool)) {
		early := c.Early != nil && c.Early()
		s.sender.Start(c.Call(), pipeline.Urgent, func(call *script.Call) {
			err := call.Err()
			if script.Parted(err) {
				j.Within(time.Second) // the slot's move may end at any time
			}
			if err != nil {
				report(script.WrongType(err)) // what Redis refuses now, for want of a permission, it may not refuse later
				return
			}
			report(c.Settles(call) && !early)
		})
	}
	return s.add(j, maxJobs)
}

// Taker is what a call takes, and how that is given back.
type Taker interface {
	// Took reads the reply of the call, and reports whether it took something.
	Took(*script.Call) bool
	// GiveBack returns a call that gives back what was taken.
	GiveBack() *script.Call
	// GaveBack reads its reply, and reports whether there was something to give back.
	GaveBack(*script.Call) bool
}

// Abandoned is a call that takes something, and that nobody waits for any more. It may have taken it, or may do so later: a request
// that was given up can arrive after the one that is sent to take it back. So a call that gave something back settles it, and one
// that found nothing does not, until what was taken would have expired.
type Abandoned struct {
	Settler *Settler
	Taker   Taker
	For     time.Duration // how long what it takes lasts

	mu   sync.Mutex // guards the rest
	job  *Job
	call *script.Call // finished, before the job was made
}

// TakeBack begins to take back what the call takes.
func (a *Abandoned) TakeBack() {
	s := a.Settler
	job := s.Clean(Cleanup{Call: a.Taker.GiveBack, Settles: a.Taker.GaveBack, Until: s.clock.Now() + a.For + Straggler})
	a.mu.Lock()
	a.job = job
	call := a.call
	a.mu.Unlock()
	if call != nil {
		a.judge(job, call)
	}
}

// Late takes the reply to the call itself.
func (a *Abandoned) Late(call *script.Call) {
	a.mu.Lock()
	a.call = call
	job := a.job
	a.mu.Unlock()
	if job != nil {
		a.judge(job, call)
	}
}

func (a *Abandoned) judge(job *Job, call *script.Call) {
	switch outcome := script.Judge(call.Err()); {
	case outcome == script.Unknown:
	case outcome == script.Done && a.Taker.Took(call):
		job.Now()
	default:
		job.Settled()
	}
}
