// Package settle finishes what a caller could not wait for: operations whose outcome is not known.
package settle

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/timer"
)

// maxJobs bounds what may be unsettled at a time, where a lease ends what nobody settles. What comes beyond it is left to
// its lease.
const maxJobs = 10_000

// pauses between the attempts of a job; the last one repeats.
//
//nolint:gochecknoglobals // a constant list
var pauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 5 * time.Second}

// Settler repeats jobs until they are settled or out of date. It is safe for concurrent use.
type Settler struct {
	timers *timer.Wheel
	clock  *clock.Clock
	sender Sender
	logger *slog.Logger

	mu     sync.Mutex // guards the rest
	jobs   map[*Job]struct{}
	told   bool // it was logged that there are too many jobs; false again when there are none
	closed bool
}

// Job is one operation to be settled.
type Job struct {
	settler *Settler
	timer   timer.Timer
	attempt Attempt
	done    func() // may be nil
	until   time.Duration
	most    time.Duration // between two attempts; guarded by the settler's mu, like tries
	tries   int
}

// Attempt sends what may settle a job and returns at once. It calls report when the answer has come, if one comes.
type Attempt func(report func(settled bool))

// New returns a settler that runs its jobs by timers of a wheel on the same clock, and sends cleanups through the sender.
func New(w *timer.Wheel, c *clock.Clock, sender Sender, logger *slog.Logger) *Settler {
	return &Settler{timers: w, clock: c, sender: sender, logger: logger, jobs: map[*Job]struct{}{}}
}

// Add has attempt called, now and then again and again, until it reports that the matter is settled or the client's
// clock shows until.
//
// A job is for what ends with a lease in any case: when too many are unsettled, one attempt is made.
func (s *Settler) Add(attempt Attempt, until time.Duration) *Job {
	return s.add(&Job{attempt: attempt, until: until, most: pauses[len(pauses)-1]}, maxJobs)
}

// AddWithin is Add for what callers wait for, or what has no lease: there is never more than most between two attempts,
// and however many jobs there are, this one is taken. When it is settled or given up, done is called.
func (s *Settler) AddWithin(attempt Attempt, done func(), until, most time.Duration) *Job {
	return s.add(&Job{attempt: attempt, done: done, until: until, most: most}, math.MaxInt)
}

// add takes a job, unless there are room others.
func (s *Settler) add(j *Job, room int) *Job {
	j.settler, j.timer.Task = s, j
	s.mu.Lock()
	full, closed := len(s.jobs) >= room, s.closed
	s.told = s.told && len(s.jobs) > 0
	tell := full && !s.told
	s.told = s.told || full
	if !full && !closed {
		s.jobs[j] = struct{}{}
	}
	s.mu.Unlock()
	if tell {
		s.logger.Warn("redlatch: too many unsettled operations; this one and those that follow are left to their leases")
	}
	if full {
		j.attempt(func(bool) {})
		return j
	}
	if closed {
		j.attempt(func(bool) {}) // the last chance
		return j
	}
	j.run()
	return j
}

// Len returns the number of unsettled jobs.
func (s *Settler) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// Settled ends the job from outside.
func (j *Job) Settled() {
	s := j.settler
	s.mu.Lock()
	_, open := s.jobs[j]
	delete(s.jobs, j)
	s.mu.Unlock()
	s.timers.Stop(&j.timer)
	if open && j.done != nil {
		j.done()
	}
}

// Now has the next attempt made at once.
func (j *Job) Now() { j.run() }

// Within has no more than d pass between two attempts from the next one on.
func (j *Job) Within(d time.Duration) {
	j.settler.mu.Lock()
	defer j.settler.mu.Unlock()
	j.most = min(j.most, d)
}

// Due has the job's next attempt made.
func (j *Job) Due(time.Duration) {
	j.run()
}

// run makes an attempt and sets the time of the next one, whether or not this one is answered.
func (j *Job) run() {
	s := j.settler
	now := s.clock.Now()
	s.mu.Lock()
	if _, open := s.jobs[j]; !open {
		s.mu.Unlock()
		return
	}
	pause := min(pauses[min(j.tries, len(pauses)-1)], j.most)
	j.tries++
	s.mu.Unlock()
	if now >= j.until {
		j.Settled()
		return
	}
	s.timers.Set(&j.timer, min(now+pause, j.until))
	j.attempt(func(settled bool) {
		if settled {
			j.Settled()
		}
	})
}

// Close makes one last attempt at each job, in parallel, and takes no new ones. It returns when all attempts have
// ended or the limit is over.
func (s *Settler) Close(limit time.Duration) {
	s.mu.Lock()
	s.closed = true
	open := make([]*Job, 0, len(s.jobs))
	for j := range s.jobs {
		open = append(open, j)
	}
	clear(s.jobs)
	s.mu.Unlock()
	if len(open) == 0 {
		return
	}
	ended := make(chan struct{}, len(open)) // room for all: nobody may wait for them
	for _, j := range open {
		s.timers.Stop(&j.timer)
		j.attempt(func(bool) { ended <- struct{}{} })
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for range open {
		select {
		case <-ended:
		case <-timer.C:
			return
		}
	}
}
