package lease

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

// errand is a call that is sent in the background, and again, until an answer settles what was left unknown.
type errand struct {
	space   *Space
	call    func() *script.Call
	early   func() bool        // whether a call that is sent now may come before what it is to undo; nil for never
	settles func(n int64) bool // whether the answer to one that is not early does
	begun   atomic.Bool        // the settler has taken it
	job     atomic.Pointer[settle.Job]
}

// begin sends the call for the first time. It is given up when the client's clock shows until.
func (e *errand) begin(until time.Duration) *settle.Job {
	job := e.space.core.Settler.Add(e.attempt, e.done, until)
	e.job.Store(job)
	return job
}

func (e *errand) attempt(report func(settled bool)) {
	e.begun.Store(true)
	early := e.early != nil && e.early()
	e.space.core.Batch.Start(e.call(), pipeline.Urgent, func(c *script.Call) {
		n, err := e.space.receivers(c)
		if job := e.job.Load(); job != nil && script.Parted(err) {
			job.Within(time.Second) // the slot's move may end at any time
		}
		if err != nil {
			report(script.WrongType(err)) // what Redis refuses now, for want of a permission, it may not refuse later
			return
		}
		report(!early && e.settles(n))
	})
}

// done ends it. If the settler was full, the call is sent this once.
func (e *errand) done() {
	if !e.begun.Load() {
		e.space.core.Batch.Start(e.call(), pipeline.Urgent, func(*script.Call) {})
	}
}

// unsettled is what may have to be released.
type unsettled struct {
	key, owner any
	until      time.Duration // how long it is tried
	final      bool          // "not held" is an answer
	told       func()        // hears of an answer that settled it; nil for nobody
}

// settleRelease releases what an owner may hold, in the background.
func (s *Space) settleRelease(u unsettled) *settle.Job {
	e := &errand{space: s}
	e.call = func() *script.Call { return s.kind.Release(u.key, u.owner) }
	e.settles = func(n int64) bool {
		settled := n > 0 || u.final
		if settled && u.told != nil {
			u.told()
		}
		return settled
	}
	return e.begin(u.until)
}
