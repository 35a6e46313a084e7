package rscheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
)

// Scheduler runs the jobs that were registered with it, and shows and changes those of all processes that share its name. It is
// safe for concurrent use.
type Scheduler struct {
	core    *core.Core
	name    string // as it was given
	options options
	queue   *queue.Queue
	keys    keys
	err     error // of the name or the options

	mu   sync.Mutex // guards all below
	jobs map[string]*job
	kick chan struct{} // closed, and replaced, when a job is registered
}

// job is a job that this process has registered.
type job struct {
	name     string
	schedule Schedule
	text     string
	run      handler
	options  jobOptions
}

// New returns the scheduler with this name, as client.GetScheduler does. client is a *redlatch.Client. It does no I/O
// and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string, opts ...Option) *Scheduler {
	c := core.Of(client)
	s := &Scheduler{core: c, name: name, jobs: map[string]*job{}, kick: make(chan struct{})}
	full := c.Prefix + name
	s.err = core.CheckUserName(name, full)
	o, err := optionsOf(opts)
	if s.err == nil {
		s.err = err
	}
	s.options = o
	s.queue = core.Manager(c, queue.New).Derived(kinds.Scheduler, name, "ticks")
	if s.err == nil {
		s.err = s.queue.Check()
	}
	bodies, claims := s.queue.Keys()
	s.keys = keysOf(full, bodies, claims)
	return s
}

// Name returns the scheduler's name as it was given to the client.
func (s *Scheduler) Name() string { return s.name }

// Run is one run of a job.
type Run struct {
	// Job is the name of the job.
	Job string
	// Scheduled is the instant of the tick by the schedule; of a manual run, when it was triggered.
	Scheduled time.Time
	// Started is when this attempt began, by Redis's clock, and Where the id of the client that runs it.
	Started time.Time
	Where   string
	// Attempt is 1 at first. It rises when a run is repeated that failed, or whose process died.
	Attempt int
	// Token rises with each attempt of any job of the scheduler, in the order in which they begin: a fencing token. It is what Redis's
	// clock shows in microseconds, or more.
	Token int64
	// Manual reports whether it was triggered.
	Manual bool
}

// Result is how an attempt has ended.
type Result struct {
	// Scheduled is the instant of the tick, and Started when the attempt began, by Redis's clock. Took is how long it took.
	Scheduled, Started time.Time
	Took               time.Duration
	// Attempt is 1 for the first one.
	Attempt int
	// Where is the id of the client that ran it.
	Where string
	// Err is the text of the handler's error; empty if it returned none.
	Err string
	// Manual reports whether it was triggered.
	Manual bool
}

// Register adds a job to those that [Scheduler.Run] runs here. It does no I/O: the job is written when Run begins, or at once while
// it runs. A name that is empty, longer than 512 bytes, not UTF-8, has control characters or was registered before, a bad schedule, a
// nil handler and bad options are redlatch.ErrInvalid.
//
// If processes have registered different schedules for a job, all of them follow the one that was written last. If Redis has lost its
// data, they write the one anew that they saw at their last heartbeat.
func (s *Scheduler) Register(name string, schedule Schedule, run func(ctx context.Context, run Run) error, opts ...JobOption) error {
	return s.wrap("register a job of", s.register(name, schedule, run, opts))
}

func (s *Scheduler) register(name string, schedule Schedule, run handler, opts []JobOption) error {
	if s.err != nil {
		return s.err
	}
	if err := core.CheckText(name); err != nil {
		return err
	}
	o, err := jobOptionsOf(opts)
	if err == nil {
		err = checkSchedule(schedule)
	}
	switch {
	case err != nil:
		return fmt.Errorf("job %q: %w", name, err)
	case run == nil:
		return fmt.Errorf("job %q: %w: the handler is nil", name, errs.ErrInvalid)
	}
	if _, fixed := schedule.(fixedDelay); fixed {
		o.overlap = Skip
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[name] != nil {
		return fmt.Errorf("job %q: %w: it is registered already", name, errs.ErrInvalid)
	}
	s.jobs[name] = &job{name: name, schedule: schedule, text: schedule.String(), run: run, options: o}
	close(s.kick)
	s.kick = make(chan struct{})
	return nil
}

// registered returns a job of this process; nil for another.
func (s *Scheduler) registered(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[name]
}

// scheduleOf returns the schedule of a text; nil if this process cannot follow it.
func (j *job) scheduleOf(text string) Schedule {
	if text == j.text {
		return j.schedule
	}
	return parseSchedule(text)
}

// kind says why there is a tick.
type kind string

const (
	regular  kind = "r"
	catchUp  kind = "c"
	manually kind = "m"
)

// tick is the payload of a message.
type tick struct {
	Job     string `json:"job"`
	Instant int64  `json:"instant"` // µs
	Due     int64  `json:"due,omitempty"`
	Text    string `json:"schedule"` // at the time of the offer
	Kind    kind   `json:"kind"`
}

// due returns when the tick was to begin, µs.
func (t *tick) due() int64 {
	if t.Due != 0 {
		return t.Due
	}
	return t.Instant
}

// dueOf returns when an attempt at a tick was to begin. In the queue a tick that was passed on, or has waited, is due anew.
func dueOf(m *queue.Message) time.Time {
	var t tick
	if m.Attempt > 1 || json.Unmarshal(m.Payload, &t) != nil {
		return m.DueAt
	}
	return time.UnixMicro(t.due())
}

// idOf returns the id that all processes give to a tick.
func idOf(job string, instant int64) string { return fmt.Sprintf("%s@%d", job, instant) }

// item returns the message of a tick.
func (t tick) item(id string) queue.Item {
	payload, _ := json.Marshal(t) // it has nothing that could fail
	return queue.Item{ID: id, At: time.UnixMicro(t.due()), Payload: payload}
}

func (s *Scheduler) wrap(verb string, err error) error {
	return errs.Wrap("rscheduler", verb, s.name, err)
}
