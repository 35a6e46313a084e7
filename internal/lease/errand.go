package lease

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// errand is a call under an owner id that is sent in the background, and again, until an answer settles what was left
// unknown. Then the id is free, once none of the calls can arrive any more: a late release would free the next hold
// of the id.
type errand struct {
	space      *Space
	key, owner any
	call       func() *script.Call
	early      func() bool        // whether a call that is sent now may come before what it is to undo; nil for never
	settles    func(n int64) bool // whether the answer to one that is not early does
	free       func()             // lets the id go
	stray      time.Duration      // until when something else may arrive that was sent under the id
	open       atomic.Int32       // calls that may arrive yet
	begun      atomic.Bool        // the settler has taken it
	job        atomic.Pointer[settle.Job]
}

// begin sends the call for the first time. It is given up when the client's clock shows until.
func (e *errand) begin(until time.Duration) *settle.Job {
	job := e.space.core.Settler.Add(e.attempt, e.done, until)
	e.job.Store(job)
	return job
}

func (e *errand) attempt(report func(settled bool)) {
	e.begun.Store(true)
	e.open.Add(1)
	early := e.early != nil && e.early()
	e.space.core.Batch.Start(e.call(), pipeline.Urgent, func(c *script.Call) {
		n, err := e.space.receivers(c)
		judged := script.Judge(err)
		if judged != script.Unknown {
			e.open.Add(-1)
		}
		if job := e.job.Load(); job != nil && script.Parted(err) {
			job.Within(time.Second) // the slot's move may end at any time
		}
		if err != nil {
			report(judged == script.NotDone && !script.Transient(err))
			return
		}
		report(!early && e.settles(n))
	})
}

// done lets the id go. If the settler was full, the call is sent this once.
func (e *errand) done() {
	if !e.begun.Load() {
		e.space.core.Batch.Start(e.call(), pipeline.Urgent, func(*script.Call) {})
		e.space.drop(e.key, e.owner)
		return
	}
	until := e.stray
	if e.open.Load() > 0 {
		until = max(until, e.space.core.Clock.Now()+straggler)
	}
	e.space.freeAfter(until, e.key, e.owner, e.free)
}

// freeAfter calls free, which lets an owner id go, when the client's clock shows until: calls under the id that got no answer may
// arrive as long. An id that will not be used again needs no such care.
func (s *Space) freeAfter(until time.Duration, key, owner any, free func()) {
	if until <= s.core.Clock.Now()+time.Millisecond || !s.usedAgain(key, owner) {
		free()
		return
	}
	var begun atomic.Bool
	nothing := func(report func(bool)) {
		begun.Store(true)
		report(false)
	}
	s.core.Settler.Add(nothing, func() {
		if begun.Load() {
			free()
		} else { // the settler is full
			s.drop(key, owner)
		}
	}, until)
}

// usedAgain reports whether a later call may have the same owner id: one of a pool, or the caller's own.
func (s *Space) usedAgain(key, owner any) bool {
	if s.apart != nil {
		return true
	}
	_, own := s.owned.get(s.ownID(key, owner))
	return own
}

// unsettled is what may have to be released.
type unsettled struct {
	key, owner any
	until      time.Duration // how long it is tried
	final      bool          // "not held" is an answer
	sent       bool          // a release was sent before, and may arrive yet
	stray      time.Duration // until when something else that was sent under the id may
	told       func()        // hears of an answer that settled it; nil for nobody
}

// settleRelease releases what an owner may hold, in the background.
func (s *Space) settleRelease(u unsettled) *settle.Job {
	e := &errand{space: s, key: u.key, owner: u.owner, stray: u.stray}
	e.call = func() *script.Call { return s.kind.Release(u.key, u.owner) }
	e.free = func() { s.unreserve(u.key, u.owner) }
	e.settles = func(n int64) bool {
		settled := n > 0 || u.final
		if settled && u.told != nil {
			u.told()
		}
		return settled
	}
	if u.sent {
		e.open.Add(1)
	}
	return e.begin(u.until)
}
