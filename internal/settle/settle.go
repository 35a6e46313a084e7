// Package settle finishes what a caller could not wait for: operations whose outcome is not known.
package settle

import (
	"log/slog"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/watchdog"
	"github.com/redlatch/redlatch/internal/wheel"
)

// maxJobs bounds what may be unsettled at a time. What comes beyond it is left to its lease.
const maxJobs = 10_000

// pauses between the attempts of a job; the last one repeats.
//
//nolint:gochecknoglobals // a constant list
var pauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 5 * time.Second}

// Settler repeats jobs until they are settled or out of date. It is safe for concurrent use.
type Settler struct {
	watchdog *watchdog.Watchdog
	clock    *clock.Clock
	logger   *slog.Logger

	mu     sync.Mutex // guards jobs, closed
	jobs   map[*Job]struct{}
	closed bool
}

// Job is one operation to be settled.
type Job struct {
	settler *Settler
	timer   wheel.Timer
	attempt func() (settled bool)
	done    func()
	until   time.Duration
	tries   int // guarded by the settler's mu
}

// New returns a settler that runs its jobs on the watchdog's workers.
func New(w *watchdog.Watchdog, c *clock.Clock, logger *slog.Logger) *Settler {
	return &Settler{watchdog: w, clock: c, logger: logger, jobs: map[*Job]struct{}{}}
}

// Add has attempt called, soon and then again and again, until it reports that the matter is settled or the client's
// clock shows until; then done is called.
func (s *Settler) Add(attempt func() (settled bool), done func(), until time.Duration) *Job {
	j := &Job{settler: s, attempt: attempt, done: done, until: until}
	j.timer.Owner = j
	s.mu.Lock()
	full := len(s.jobs) >= maxJobs
	if !full && !s.closed {
		s.jobs[j] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		s.logger.Warn("redlatch: too many unsettled operations; one is left to its lease")
		done()
		return j
	}
	s.watchdog.Go(j.run)
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
	s.watchdog.Stop(&j.timer)
	if open {
		j.done()
	}
}

// Now has the next attempt made at once.
func (j *Job) Now() { j.settler.watchdog.Go(j.run) }

// Due has the job's next attempt made.
func (j *Job) Due(time.Duration) watchdog.Renewer {
	j.settler.watchdog.Go(j.run)
	return nil
}

func (j *Job) run() {
	s := j.settler
	s.mu.Lock()
	_, open := s.jobs[j]
	s.mu.Unlock()
	if !open {
		return
	}
	now := s.clock.Now()
	if j.attempt() || now >= j.until {
		j.Settled()
		return
	}
	s.mu.Lock()
	pause := pauses[min(j.tries, len(pauses)-1)]
	j.tries++
	s.mu.Unlock()
	s.watchdog.Set(&j.timer, min(now+pause, max(j.until, now)))
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
		s.watchdog.Stop(&j.timer)
		s.watchdog.Go(func() {
			j.attempt()
			ended <- struct{}{}
		})
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
