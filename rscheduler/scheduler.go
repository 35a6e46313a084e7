package rscheduler

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	kick chan struct{} // closed, and replaced, when a job is registered, replaced or unregistered
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
	s.keys = keysOf(full, s.queue.Places())
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
	// Attempt is 1 at first. It rises when a run is repeated that failed, or whose process died, also before the run began.
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

// Register adds a job to those that [Scheduler.Run] runs here. It does no I/O: the job is written when Run begins, or within a second while
// it runs. A name that is empty, longer than 512 bytes, not UTF-8, has control characters or was registered before, a bad schedule, a
// nil handler and bad options are redlatch.ErrInvalid.
//
// If processes have registered different schedules for a job, all of them follow the one that was written last. If Redis has lost its
// data, they write the one again that they saw last.
func (s *Scheduler) Register(name string, schedule Schedule, run func(ctx context.Context, run Run) error, opts ...JobOption) error {
	return s.wrap("register a job of", s.register(name, schedule, run, opts))
}

// Replace gives a job that is registered here another schedule and another handler; its options stay. It does no I/O: the schedule is
// written as [Scheduler.Register] says, and then holds for all processes. A run that goes on ends under its old handler. A tick of the old
// schedule that is due and has not begun is replaced by one of the new schedule that is due since, if there is one. A job that is not
// registered here is [ErrNotFound]; a bad schedule and a nil handler are redlatch.ErrInvalid.
func (s *Scheduler) Replace(name string, schedule Schedule, run func(ctx context.Context, run Run) error) error {
	return s.wrap("replace a job of", s.replace(name, schedule, run))
}

// Unregister takes a job from those that Run runs here, within a second, and reports whether it was registered. It does no I/O. A run that
// goes on is not ended. Other processes that have registered the job go on with it; if there is none, it is kept as orphaned, see
// [Scheduler.Remove].
func (s *Scheduler) Unregister(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.jobs[name]
	delete(s.jobs, name)
	s.kickLocked()
	return ok
}

func (s *Scheduler) register(name string, schedule Schedule, run handler, opts []JobOption) error {
	if s.err != nil {
		return s.err
	}
	o, err := jobOptionsOf(opts)
	if err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	j, err := jobOf(name, schedule, run, o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[name] != nil {
		return fmt.Errorf("job %q: %w: it is registered already", name, errs.ErrInvalid)
	}
	s.jobs[name] = j
	s.kickLocked()
	return nil
}

func (s *Scheduler) replace(name string, schedule Schedule, run handler) error {
	if s.err != nil {
		return s.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.jobs[name]
	if old == nil {
		return fmt.Errorf("job %q %w", name, ErrNotFound)
	}
	j, err := jobOf(name, schedule, run, old.options)
	if err == nil {
		s.jobs[name] = j
		s.kickLocked()
	}
	return err
}

func (s *Scheduler) kickLocked() {
	close(s.kick)
	s.kick = make(chan struct{})
}

// jobOf returns a job if it is in order.
func jobOf(name string, schedule Schedule, run handler, o jobOptions) (*job, error) {
	if err := core.CheckText(name); err != nil {
		return nil, err
	}
	if err := checkSchedule(schedule); err != nil {
		return nil, fmt.Errorf("job %q: %w", name, err)
	}
	if run == nil {
		return nil, fmt.Errorf("job %q: %w: the handler is nil", name, errs.ErrInvalid)
	}
	return &job{name: name, schedule: schedule, text: schedule.String(), run: run, options: o}, nil
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

// tick is what the id and the payload of a message say: a job, an instant of its schedule or when a manual run was triggered, and when
// it is due first, µs.
type tick struct {
	name         string
	instant, due int64
	manual       bool
}

// manualMark is before the instant in the id of a manual run.
const manualMark = "m"

// tickOf returns the tick of an id, but for when it is due; false if it is of none.
func tickOf(id string) (t tick, ok bool) {
	at := strings.LastIndexByte(id, '@')
	if at < 0 {
		return t, false
	}
	t.name = id[:at]
	digits, manual := strings.CutPrefix(id[at+1:], manualMark)
	digits, _, _ = strings.Cut(digits, "-")
	t.instant, t.manual = instantOf(digits), manual
	return t, t.instant != never
}

// dueTick returns the tick of a message; false if it has none.
func dueTick(m *queue.Message) (tick, bool) {
	t, ok := tickOf(m.ID)
	t.due = instantOf(string(m.Payload))
	return t, ok && t.due != never
}

// instantOf reads an instant; never if there is none.
func instantOf(digits string) int64 {
	instant, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return never
	}
	return instant
}

// dueOf returns when an attempt at a tick was to begin. In the queue a tick that was passed on, or has waited, has another time.
func dueOf(m *queue.Message) time.Time {
	t, ok := dueTick(m)
	if m.Attempt > 1 || !ok {
		return m.DueAt
	}
	return time.UnixMicro(t.due)
}

func (s *Scheduler) wrap(verb string, err error) error {
	return errs.Wrap("rscheduler", verb, s.name, err)
}
