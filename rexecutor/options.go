package rexecutor

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/queue"
)

// Option is a setting of an executor, for [New]. All processes that share the executor should have the same.
type Option interface{ setExecutor(s *settings) }

// TaskOption is a setting of a task, for [NewTask].
type TaskOption interface{ setTask(s *taskSettings) }

// SubmitOption is a setting of one submission, for [Task.Submit] and [Task.Send].
type SubmitOption interface{ setSubmission(s *submission) }

// DefaultOption is a setting of a task that a submission may override: a [TaskOption] and a [SubmitOption].
type DefaultOption interface {
	TaskOption
	SubmitOption
}

// WaitOption is a setting of an executor that a submission may override: an [Option] and a [SubmitOption].
type WaitOption interface {
	Option
	SubmitOption
}

// WorkOption is a setting of [Executor.Work].
type WorkOption interface{ setWork(s *workSettings) }

type (
	executorOption func(*settings)
	taskOption     func(*taskSettings)
	submitOption   func(*submission)
	defaultOption  func(*terms)
	waitOption     time.Duration
	workOption     func(*workSettings)
)

func (set executorOption) setExecutor(s *settings)   { set(s) }
func (set taskOption) setTask(s *taskSettings)       { set(s) }
func (set submitOption) setSubmission(s *submission) { set(s) }
func (set defaultOption) setTask(s *taskSettings)    { set(&s.terms) }
func (set defaultOption) setSubmission(s *submission) {
	set(&s.terms)
}
func (d waitOption) setExecutor(s *settings)     { s.room.Wait = time.Duration(d) }
func (d waitOption) setSubmission(s *submission) { s.wait = (*time.Duration)(&d) }
func (set workOption) setWork(s *workSettings)   { set(s) }

type settings struct {
	codec      codec.Codec
	resultTTL  time.Duration
	visibility time.Duration
	room       queue.Room
	group      queue.Group // without a key
}

// terms are what a task says of all its submissions, and a submission of itself.
type terms struct {
	attempts *int
	priority *int
	expiry   *time.Duration
}

type taskSettings struct {
	terms

	backoff func(attempt int) time.Duration
	timeout *time.Duration
}

type submission struct {
	terms

	id      *string
	delay   time.Duration
	group   *string
	headers map[string]string
	wait    *time.Duration
}

type workSettings struct {
	concurrency int
	stopGrace   time.Duration
	limits      map[string]int
	use         []func(Handler) Handler
}

// WithResultTTL sets how long a result is kept, 1 s to a year, and for how long the id of a task that has ended stays taken: that of the
// worker which ended it counts. Defaults to an hour.
func WithResultTTL(d time.Duration) Option {
	return executorOption(func(s *settings) { s.resultTTL = d })
}

// WithCodec sets the encoding of arguments and results. Defaults to [codec.MsgPack].
func WithCodec(c codec.Codec) Option { return executorOption(func(s *settings) { s.codec = c }) }

// WithVisibility sets how long a claim lasts, 1 s to 7 days: the task of a worker that died is done again after that. Work renews it while
// a handler runs. Defaults to 30 s.
func WithVisibility(d time.Duration) Option {
	return executorOption(func(s *settings) { s.visibility = d })
}

// WithCapacity sets how many tasks may be delayed, ready or in flight: a submission that would make more waits for room as [WithWait] says, and then
// returns [ErrFull]. 0, the default, is no limit.
func WithCapacity(n int) Option { return executorOption(func(s *settings) { s.room.Capacity = n }) }

// WithWait sets for how long a submission waits for room in an executor with [WithCapacity]. Defaults to 0.
func WithWait(d time.Duration) WaitOption { return waitOption(d) }

// WithGroupLimit sets how many tasks of one group may be in flight at a time, 1 to 10,000: see [WithGroup]. That of the executor which submits
// counts. Defaults to 1.
func WithGroupLimit(n int) Option { return executorOption(func(s *settings) { s.group.Limit = n }) }

// WithGroupSkip has the tasks of a group pass one that waits for its retry. By default they wait with it, which keeps their order.
func WithGroupSkip() Option { return executorOption(func(s *settings) { s.group.Skip = true }) }

// WithMaxAttempts sets after how many attempts a task has failed for good; 0 for no limit. That of a submission goes before that of its task, as
// with the other options that both have. Defaults to 10.
func WithMaxAttempts(n int) DefaultOption {
	return defaultOption(func(t *terms) { t.attempts = &n })
}

// WithPriority sets the priority, 0 to 9: of the tasks that are due the higher ones are begun first. A steady flow of high ones starves low
// ones. Defaults to 0.
func WithPriority(p int) DefaultOption { return defaultOption(func(t *terms) { t.priority = &p }) }

// WithExpiry has a task end with [ErrExpired] if its first attempt has not begun within d after it was due, 1 ms to 100 years. Defaults to
// no end.
func WithExpiry(d time.Duration) DefaultOption {
	return defaultOption(func(t *terms) { t.expiry = &d })
}

// WithBackoff sets the pause before a task is tried again after a failed attempt, counted from 1. The function must return at once. It is
// that of the worker. Defaults to 1 s, doubled with each attempt up to 15 minutes, with a jitter of 25 %.
func WithBackoff(f func(attempt int) time.Duration) TaskOption {
	return taskOption(func(s *taskSettings) { s.backoff = f })
}

// WithTimeout ends the context of a handler after d, 1 ms to 7 days, with the cause [ErrTimeout]. The attempt has then failed, whatever
// the handler returns. Defaults to none.
func WithTimeout(d time.Duration) TaskOption {
	return taskOption(func(s *taskSettings) { s.timeout = &d })
}

// WithID sets the id, 1 to 512 bytes of UTF-8 without control characters. A submission with the id of a task that waits, runs, has failed for good
// or whose result is kept submits nothing: its future is that of the other, whose arguments count. The id of another task is
// redlatch.ErrInvalid. Defaults to a generated UUIDv7.
func WithID(id string) SubmitOption { return submitOption(func(s *submission) { s.id = &id }) }

// WithDelay sets after which time the task is due, up to 100 years. Defaults to 0.
func WithDelay(d time.Duration) SubmitOption {
	return submitOption(func(s *submission) { s.delay = d })
}

// WithGroup sets the group, 1 to 512 bytes of UTF-8 without control characters, such as the id of a customer: tasks of a group, of whatever names, are
// begun in the order in which they are due, and then of submission, and only [WithGroupLimit] of them are in flight at a time.
func WithGroup(key string) SubmitOption {
	return submitOption(func(s *submission) { s.group = &key })
}

// WithHeaders sets headers, for what is not part of the arguments: see [Info]. They are UTF-8 and have at most 4 KiB as JSON. Those of an observer,
// such as redlatchotel, are added.
func WithHeaders(headers map[string]string) SubmitOption {
	return submitOption(func(s *submission) { s.headers = headers })
}

// WithConcurrency sets how many handlers run at a time, 1 to 100,000. Defaults to 1.
func WithConcurrency(n int) WorkOption {
	return workOption(func(s *workSettings) { s.concurrency = n })
}

// WithTaskConcurrency sets how many handlers of one task run at a time in this Work, 1 to 100,000. Others of the task are left to other
// processes meanwhile. Defaults to no limit but that of [WithConcurrency].
func WithTaskConcurrency[A, R any](t *Task[A, R], n int) WorkOption {
	return workOption(func(s *workSettings) {
		if t == nil {
			n = 0 // which is refused
			t = &Task[A, R]{}
		}
		s.limits[t.name] = n
	})
}

// WithStopGrace sets how long handlers may go on after Work was to end, before their contexts end. 0 to 1 h. Defaults to 5 s.
func WithStopGrace(d time.Duration) WorkOption {
	return workOption(func(s *workSettings) { s.stopGrace = d })
}

// Use wraps the handlers of all tasks in middleware, the first one outermost. It is called once, when Work begins; the
// handler that it returns is called for each attempt. It passes on its context, or one that descends from it, and may return without calling
// next: with an error the attempt has failed, and without one the task is done with the zero value as its result. Nil middleware, and one that
// returns nil, are redlatch.ErrInvalid.
func Use(middleware ...func(next Handler) Handler) WorkOption {
	return workOption(func(s *workSettings) { s.use = append(s.use, middleware...) })
}

func executorSettings(opts []Option) (settings, error) {
	s := settings{codec: codec.MsgPack{}, resultTTL: time.Hour, visibility: 30 * time.Second, group: queue.Group{Limit: 1}}
	if err := option.Apply(opts, &s, Option.setExecutor); err != nil {
		return s, err
	}
	if core.IsNil(s.codec) {
		return s, fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	}
	if err := errs.Within("capacity", s.room.Capacity, 0, 1<<30); err != nil {
		return s, err
	}
	if err := errs.Within("group limit", s.group.Limit, 1, 10_000); err != nil {
		return s, err
	}
	for _, d := range []struct {
		what               string
		value, least, most time.Duration
	}{
		{"wait", s.room.Wait, 0, queue.MaxDelay},
		{"time for which results are kept", s.resultTTL, time.Second, 365 * 24 * time.Hour},
		{"visibility", s.visibility, time.Second, 7 * 24 * time.Hour},
	} {
		if err := errs.Between(d.what, d.value, d.least, d.most); err != nil {
			return s, err
		}
	}
	return s, nil
}

func taskSettingsOf(opts []TaskOption) (taskSettings, error) {
	s := taskSettings{backoff: queue.DefaultBackoff}
	if err := option.Apply(opts, &s, TaskOption.setTask); err != nil {
		return s, err
	}
	if s.backoff == nil {
		return s, fmt.Errorf("%w: the back-off is nil", errs.ErrInvalid)
	}
	if s.timeout != nil {
		if err := errs.Between("timeout", *s.timeout, time.Millisecond, 7*24*time.Hour); err != nil {
			return s, err
		}
	}
	return s, s.check()
}

// submissionOf returns the settings of a submission of a task with these terms.
func submissionOf(t terms, opts []SubmitOption) (submission, error) {
	s := submission{terms: t}
	if err := option.Apply(opts, &s, SubmitOption.setSubmission); err != nil {
		return s, err
	}
	if s.id != nil {
		if err := queue.CheckText("id", *s.id); err != nil {
			return s, err
		}
	}
	if s.group != nil {
		if err := queue.CheckText("group", *s.group); err != nil {
			return s, err
		}
	}
	if err := errs.Between("delay", s.delay, 0, queue.MaxDelay); err != nil {
		return s, err
	}
	if s.wait != nil {
		if err := errs.Between("wait", *s.wait, 0, queue.MaxDelay); err != nil {
			return s, err
		}
	}
	if err := queue.CheckHeaders(s.headers); err != nil {
		return s, err
	}
	return s, s.check()
}

func (t terms) check() error {
	if t.attempts != nil {
		if err := errs.Within("number of attempts", *t.attempts, 0, 1<<30); err != nil {
			return err
		}
	}
	if t.priority != nil {
		if err := errs.Within("priority", *t.priority, 0, queue.MaxPriority); err != nil {
			return err
		}
	}
	if t.expiry != nil {
		return errs.Between("expiry", *t.expiry, time.Millisecond, queue.MaxDelay)
	}
	return nil
}

func workSettingsOf(opts []WorkOption) (workSettings, error) {
	s := workSettings{concurrency: 1, stopGrace: 5 * time.Second, limits: map[string]int{}}
	if err := option.Apply(opts, &s, WorkOption.setWork); err != nil {
		return s, err
	}
	if err := errs.Within("concurrency", s.concurrency, 1, 100_000); err != nil {
		return s, err
	}
	for name, n := range s.limits {
		if err := errs.Within(fmt.Sprintf("concurrency of task %q", name), n, 1, 100_000); err != nil {
			return s, err
		}
	}
	return s, errs.Between("stop grace", s.stopGrace, 0, time.Hour)
}
