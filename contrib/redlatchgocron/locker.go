package redlatchgocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/ronce"
)

// The errors of a [Locker] in the usual course of things: another process runs the tick, or nobody does. They come wrapped; test them with
// errors.Is.
var (
	// ErrTaken is returned by Lock if a process has taken the tick already.
	ErrTaken = errors.New("the tick is taken")
	// ErrRunning is returned by Lock if an earlier run of the job has not ended, in any process. The tick is left out.
	ErrRunning = errors.New("the job is running")
)

// Option is a setting of a [Locker].
type Option interface{ set(o *options) }

type setting func(*options)

func (f setting) set(o *options) { f(o) }

type options struct {
	skew    time.Duration
	overlap bool
	now     func() time.Time
}

// WithSkew sets by how much the clocks of the processes may differ, up to a week: for so long, and a period more, Redis keeps that a
// tick is taken. Defaults to 1 h.
func WithSkew(d time.Duration) Option { return setting(func(o *options) { o.skew = d }) }

// WithOverlap lets a tick run although an earlier run of its job has not ended. Without it the tick is left out.
func WithOverlap() Option { return setting(func(o *options) { o.overlap = true }) }

// WithNow sets the clock, which must be that of the scheduler: what gocron.WithClock was given. Defaults to time.Now.
func WithNow(now func() time.Time) Option { return setting(func(o *options) { o.now = now }) }

const (
	shortestPeriod = 10 * time.Millisecond
	longestPeriod  = 24 * time.Hour
	longestSkew    = 7 * 24 * time.Hour
)

// Locker is a gocron.Locker with which each tick of a job runs once, for gocron.WithDistributedLocker and
// gocron.WithDistributedJobLocker. It is safe for concurrent use.
//
// gocron tells a locker the name of a job, and not which tick it is. So the locker rounds the time to the nearest multiple of its period,
// in UTC, on the clock that gocron goes by, and takes this tick of the job for good. A process whose clock is behind comes to the same
// tick later and finds it taken, though the run has ended by then. What follows from that:
//
//   - The clocks may differ by the time of [WithSkew], however short the jobs are. The fastest clock decides when a tick runs.
//   - Of a job with more ticks than one in a period one runs. So the period is at most the shortest time between two ticks.
//   - Ticks are to be at multiples of the period: those of gocron.CronJob, or of gocron.DurationJob with a rounded gocron.WithStartAt. Any
//     other ticks, which processes do not have in common, run once in each period.
//   - A tick that begins late by half a period or more, since its process stood still, counts as the next one, which then is taken.
//
// While a job runs, the locker holds the lock name:job, with the client's lease, which is renewed. When its process dies,
// ticks of the job are left out until the lease ends.
type Locker struct {
	client  *redlatch.Client
	name    string
	period  time.Duration
	options options
	ticks   *ronce.Once[string] // who took a tick
}

// NewLocker returns the locker of a name, for jobs that tick at multiples of the period: time.Minute for those of cron expressions without
// seconds. Processes whose lockers share the name share the jobs. All of them need the same period, from 10 ms to a day. It does no I/O.
// A bad period and bad options are redlatch.ErrInvalid.
func NewLocker(client *redlatch.Client, name string, period time.Duration, opts ...Option) (*Locker, error) {
	o := options{skew: time.Hour, now: time.Now}
	for _, opt := range opts {
		if opt == nil {
			return nil, invalid("an option is nil")
		}
		opt.set(&o)
	}
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case name == "":
		return nil, invalid("the name is empty")
	case period < shortestPeriod || period > longestPeriod:
		return nil, invalid("the period %v is not between %v and %v", period, shortestPeriod, longestPeriod)
	case o.skew < 0 || o.skew > longestSkew:
		return nil, invalid("the skew %v is not between 0 and %v", o.skew, longestSkew)
	case o.now == nil:
		return nil, invalid("the clock is nil")
	}
	ticks := redlatch.GetOnce[string](client, name, ronce.WithTTL(period+o.skew))
	return &Locker{client: client, name: name, period: period, options: o, ticks: ticks}, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("redlatchgocron: %w: "+format, append([]any{redlatch.ErrInvalid}, args...)...)
}

// Lock takes the tick of a job that is nearest to now. gocron calls it.
//
// It returns [ErrTaken] if a process has taken the tick, and [ErrRunning] if an earlier run of the job goes on, at once. If Redis does
// not answer it tries for a period, or the client's lease if that is shorter, and then fails: the tick may be taken even so, and is then
// run by nobody. It costs two round trips, three with the lock of the job, and one if the tick is taken.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	run, err := l.lock(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("redlatchgocron: lock job %q of %q: %w", job, l.name, err)
	}
	return run, nil
}

func (l *Locker) lock(ctx context.Context, job string) (*run, error) {
	tick := l.options.now().Round(l.period).UTC().Format(time.RFC3339Nano)
	taking, cancel := context.WithTimeout(ctx, l.period)
	defer cancel()
	by, taken, err := l.ticks.Do(taking, job+"@"+tick, func(context.Context) (string, error) { return l.client.ID(), nil })
	switch {
	case err != nil:
		return nil, err
	case taken:
		return nil, fmt.Errorf("%w: %s by %s", ErrTaken, tick, by)
	case l.options.overlap:
		return &run{}, nil
	}
	// The tick was taken first: a lock that is held for nothing but a look at the tick would keep out the next one.
	hold, err := l.client.GetLock(l.name+":"+job).TryLock(ctx, rlock.WithoutReentry())
	if errors.Is(err, rlock.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUnavailable) {
		return nil, fmt.Errorf("%w: %s is left out", ErrRunning, tick)
	}
	return &run{hold}, err
}

// run is a run of a job: the hold of its lock, or nil.
type run struct{ hold *rlock.Hold }

// Unlock releases the lock of the job. The tick stays taken.
func (r *run) Unlock(ctx context.Context) error {
	if r.hold == nil {
		return nil
	}
	return r.hold.Unlock(ctx)
}
