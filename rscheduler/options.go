package rscheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/queue"
)

// Option is a setting of a scheduler, for [New] and redlatch's GetScheduler.
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

type options struct {
	concurrency int
	lease       time.Duration
	stopGrace   time.Duration
}

// WithConcurrency sets how many handlers a Run has at a time, 1 to 100,000. Defaults to 10.
func WithConcurrency(n int) Option { return setting(func(o *options) { o.concurrency = n }) }

// WithLease sets after which time the run of a process that died is given to another one, 1 s to 7 days. It is renewed while a
// handler runs, which may take longer. Defaults to 30 s.
func WithLease(d time.Duration) Option { return setting(func(o *options) { o.lease = d }) }

// WithStopGrace sets how long handlers may go on after Run stops, before their contexts end. 0 to 1 h. Defaults to 5 s.
func WithStopGrace(d time.Duration) Option { return setting(func(o *options) { o.stopGrace = d }) }

// JobOption is a setting of one job, for [Scheduler.Register]. Each process goes by its own.
type JobOption interface{ set(o *jobOptions) }

type jobSetting func(*jobOptions)

func (s jobSetting) set(o *jobOptions) { s(o) }

type jobOptions struct {
	overlap    Overlap
	catchUp    time.Duration
	backlog    int
	jitter     time.Duration
	timeout    *time.Duration // nil for none
	attempts   int
	backoff    func(attempt int) time.Duration
	atMostOnce bool
	history    int
}

// Overlap says what becomes of a tick that comes while the last run of its job has not ended: while its handler runs, or while it waits
// for another attempt. Under [Skip], while the claim of a process that died blocks the job, ticks count as missed, see [WithCatchUp]; but
// not if its run was a manual one.
type Overlap int

const (
	// Skip leaves the tick out.
	Skip Overlap = iota
	// Queue runs the newest one of such ticks when the run has ended.
	Queue
	// QueueAll runs all of such ticks one after another when the run has ended, see [WithBacklog]: a fixed rate that catches up.
	QueueAll
	// Allow runs the tick beside it.
	Allow
)

// String returns the name of the policy, in lower case.
func (o Overlap) String() string {
	if o < Skip || o > Allow {
		return fmt.Sprintf("Overlap(%d)", int(o))
	}
	return [...]string{"skip", "queue", "queue all", "allow"}[o]
}

// WithOverlap sets what becomes of a tick that comes while the last run of the job has not ended. Defaults to [Skip]. The runs of an
// [EveryAfter] never overlap. While processes with and without [Allow] run the same job, its runs may overlap.
func WithOverlap(o Overlap) JobOption { return jobSetting(func(s *jobOptions) { s.overlap = o }) }

// WithBacklog sets how many ticks of a job with [QueueAll] wait at most, 1 to 10,000. If there are more, the oldest are left out.
// Defaults to 100.
func WithBacklog(n int) JobOption { return jobSetting(func(s *jobOptions) { s.backlog = n }) }

// WithCatchUp has ticks run late that were missed, because of an outage or a deployment, if they are younger than the window, up to a
// year: with [QueueAll] and [Allow] all of them, else only the newest one. Defaults to an hour; with 0, what was missed is left out.
//
// A tick is missed if, when it was due, nobody ran the scheduler, or no process that has registered the job, or a process had claimed it
// that died before it began. A process counts as running until Run returns, and one that died or lost Redis for 25 s more: what is due in a
// gap that is shorter runs late. Under [Skip] the ticks are missed as well that come between the death of a process and the repetition of
// its run.
func WithCatchUp(window time.Duration) JobOption {
	return jobSetting(func(s *jobOptions) { s.catchUp = window })
}

// WithJitter begins each tick up to d later, by chance, up to a day. Defaults to 0.
func WithJitter(d time.Duration) JobOption { return jobSetting(func(s *jobOptions) { s.jitter = d }) }

// WithTimeout ends the context of a handler after d, 1 ms to 7 days, with the cause [ErrTimeout]. The attempt has then failed,
// whatever the handler returns. Defaults to none.
func WithTimeout(d time.Duration) JobOption {
	return jobSetting(func(s *jobOptions) { s.timeout = &d })
}

// WithMaxAttempts sets the number of attempts of a run whose handler fails; 0 for no limit. Defaults to 1: a run that failed is not
// repeated.
func WithMaxAttempts(n int) JobOption { return jobSetting(func(s *jobOptions) { s.attempts = n }) }

// WithBackoff sets the pause before the next attempt of a run that failed, counted from 1. The function must return at once. If it
// panics or returns a negative duration, the pause is 1 s; the longest pause is 100 years. Defaults to 1 s, doubled with each attempt
// up to 15 minutes, with a jitter of 25 %. It is for [WithMaxAttempts].
func WithBackoff(f func(attempt int) time.Duration) JobOption {
	return jobSetting(func(s *jobOptions) { s.backoff = f })
}

// WithAtMostOnce does not repeat a run whose process died. Without it such a run is repeated after the lease, up to 10 attempts in all, or
// as many as [WithMaxAttempts] allows if these are more.
func WithAtMostOnce() JobOption { return jobSetting(func(s *jobOptions) { s.atMostOnce = true }) }

// WithHistory sets how many results are kept for [Scheduler.Runs], 0 to 1000. Defaults to 20.
func WithHistory(n int) JobOption { return jobSetting(func(s *jobOptions) { s.history = n }) }

// maxAttempts stands for no limit.
const maxAttempts = 1 << 30

// deaths is after which attempt a run whose process died is not repeated.
const deaths = 10

func (o *jobOptions) deaths() int {
	if o.atMostOnce {
		return 1
	}
	return max(deaths, o.attempts)
}

// pause returns the pause after a failed attempt. What a user's function does wrong costs a second.
func (o *jobOptions) pause(attempt int) (d time.Duration) {
	defer func() {
		if recover() != nil || d < 0 {
			d = time.Second
		}
	}()
	return min(o.backoff(attempt), queue.MaxDelay)
}

func optionsOf(opts []Option) (options, error) {
	o := options{concurrency: 10, lease: 30 * time.Second, stopGrace: 5 * time.Second}
	if err := option.Apply(opts, &o, Option.set); err != nil {
		return o, err
	}
	if o.concurrency < 1 || o.concurrency > 100_000 {
		return o, invalid("a concurrency of %d is not between 1 and 100,000", o.concurrency)
	}
	if err := errs.Between("stop grace", o.stopGrace, 0, time.Hour); err != nil {
		return o, err
	}
	return o, errs.Between("lease", o.lease, time.Second, 7*24*time.Hour)
}

func jobOptionsOf(opts []JobOption) (jobOptions, error) {
	o := jobOptions{catchUp: time.Hour, backlog: 100, attempts: 1, backoff: queue.DefaultBackoff, history: 20}
	if err := option.Apply(opts, &o, JobOption.set); err != nil {
		return o, err
	}
	switch {
	case o.backoff == nil:
		return o, invalid("the back-off is nil")
	case o.overlap < Skip || o.overlap > Allow:
		return o, invalid("%v is not Skip, Queue, QueueAll or Allow", o.overlap)
	case o.backlog < 1 || o.backlog > 10_000:
		return o, invalid("a backlog of %d ticks is not between 1 and 10,000", o.backlog)
	case o.attempts < 0 || o.attempts > maxAttempts:
		return o, invalid("number of attempts %d is not between 0 and %d", o.attempts, maxAttempts)
	case o.history < 0 || o.history > 1000:
		return o, invalid("a history of %d runs is not between 0 and 1000", o.history)
	}
	if o.attempts == 0 {
		o.attempts = maxAttempts
	}
	if o.timeout != nil {
		if err := errs.Between("timeout", *o.timeout, time.Millisecond, 7*24*time.Hour); err != nil {
			return o, err
		}
	}
	if err := errs.Between("jitter", o.jitter, 0, 24*time.Hour); err != nil {
		return o, err
	}
	return o, errs.Between("window", o.catchUp, 0, 366*24*time.Hour)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errs.ErrInvalid}, args...)...)
}

// handler runs a job.
type handler = func(ctx context.Context, run Run) error
