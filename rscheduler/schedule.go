package rscheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
)

// Schedule says when a job runs. [Cron], [Every], [EveryAfter] and [At] return one; programs may have their own.
//
// String is how the schedule is kept in Redis, and shown: two schedules are the same if their texts are. Processes that have
// registered another schedule for a job follow that of the text, as far as this package can read it. Schedules of a program's own are
// followed by those processes alone that have registered the same text.
type Schedule interface {
	// Next returns the first instant after the given time; false if there is none. It must depend on nothing else, so that all
	// processes come to the same instants, and must not block. An instant is a whole microsecond: others are rounded up.
	Next(after time.Time) (time.Time, bool)
	// String returns a text of 1 to 512 bytes.
	String() string
}

const (
	minPeriod = 10 * time.Millisecond
	maxPeriod = 100 * 365 * 24 * time.Hour

	everyText = "every "
	afterText = " after the last run"
	atText    = "at "
	fromText  = " from "
)

// every is a fixed rate, and fixedDelay a fixed delay.
type (
	every struct {
		period time.Duration
		from   bool // start is the first instant; else they are multiples since the Unix epoch
		start  time.Time
	}
	fixedDelay struct{ delay time.Duration }
	oneShot    struct{ at time.Time }
)

// EveryOption is a setting of [Every].
type EveryOption interface{ set(e *every) }

type everySetting func(*every)

func (s everySetting) set(e *every) { s(e) }

// From has a fixed rate begin at t, which is its first instant, and count from there: Every(14*24*time.Hour, From(tuesday)) is every
// second Tuesday, 24 hours a day whatever the clocks of a country do. A time of another year than 1970 to 2199 is redlatch.ErrInvalid.
func From(t time.Time) EveryOption {
	return everySetting(func(e *every) { e.from, e.start = true, t.Truncate(time.Microsecond).UTC() })
}

// Every returns the schedule of a fixed rate: its instants are the multiples of the period since the Unix epoch, or since the time of
// [From], so that all processes have the same, and a deployment does not move them. The period is 10 ms to 100 years; Register refuses
// others.
func Every(period time.Duration, opts ...EveryOption) Schedule {
	e := every{period: period}
	if err := option.Apply(opts, &e, EveryOption.set); err != nil {
		return every{} // which Register refuses
	}
	return e
}

// EveryAfter returns the schedule of a fixed delay: each run starts that long after the end of the one before, and the first one that
// long after the job was first registered. The delay is 10 ms to 100 years; Register refuses others.
//
// Its runs never overlap, and none is ever missed: one that was due while nobody ran starts as soon as somebody does.
func EveryAfter(delay time.Duration) Schedule { return fixedDelay{delay} }

// At returns the schedule of a single run. If t had passed when the job was first registered, it is a missed tick, see [WithCatchUp]. So
// within that window it may run again after [Scheduler.Remove], or when Redis has lost its data. When another schedule of the job had
// replaced it for a while, it does not run again.
func At(t time.Time) Schedule { return oneShot{t.Truncate(time.Microsecond)} }

func (s every) Next(after time.Time) (time.Time, bool) {
	if s.check() != nil {
		return time.Time{}, false
	}
	if s.from {
		if after.Before(s.start) {
			return s.start, true
		}
		periods := after.Sub(s.start)/s.period + 1 // Sub ends at 292 years, which is more than there are
		return s.start.Add(periods * s.period), true
	}
	since := after.UnixNano()
	periods := since / int64(s.period)
	if since < 0 && since%int64(s.period) != 0 {
		periods--
	}
	return time.Unix(0, (periods+1)*int64(s.period)).UTC(), true
}

func (s every) String() string {
	if !s.from {
		return everyText + s.period.String()
	}
	return everyText + s.period.String() + fromText + s.start.Format(time.RFC3339Nano)
}

func (s every) check() error {
	if err := checkPeriod("period", s.period); err != nil || !s.from {
		return err
	}
	return checkYear(s.start)
}

func (s fixedDelay) Next(after time.Time) (time.Time, bool) {
	return after.Add(s.delay).UTC(), s.check() == nil
}

func (s fixedDelay) String() string { return everyText + s.delay.String() + afterText }

func (s fixedDelay) check() error { return checkPeriod("delay", s.delay) }

func (s oneShot) Next(after time.Time) (time.Time, bool) { return s.at.UTC(), s.at.After(after) }

func (s oneShot) String() string { return atText + s.at.UTC().Format(time.RFC3339Nano) }

func (s oneShot) check() error { return checkYear(s.at) }

func checkYear(t time.Time) error {
	if t.Year() < 1970 || t.Year() > maxYear {
		return fmt.Errorf("%w: the time %v is not of a year from 1970 to %d", errs.ErrInvalid, t, maxYear)
	}
	return nil
}

func checkPeriod(what string, d time.Duration) error {
	if d < minPeriod || d > maxPeriod || d%time.Microsecond != 0 {
		return fmt.Errorf("%w: the %s %v is not whole microseconds from %v to %v", errs.ErrInvalid, what, d, minPeriod, maxPeriod)
	}
	return nil
}

// checkSchedule says what is wrong with a schedule.
func checkSchedule(s Schedule) error {
	if core.IsNil(s) {
		return fmt.Errorf("%w: the schedule is nil", errs.ErrInvalid)
	}
	if own, ok := s.(interface{ check() error }); ok {
		if err := own.check(); err != nil {
			return err
		}
	}
	if text := s.String(); text == "" || len(text) > errs.MaxName {
		return fmt.Errorf("%w: the text of the schedule has %d bytes, not 1 to %d", errs.ErrInvalid, len(text), errs.MaxName)
	}
	return nil
}

// parseSchedule returns the schedule of a text that one of this package has given; nil for one of somebody else.
func parseSchedule(text string) Schedule {
	if rest, ok := strings.CutPrefix(text, everyText); ok {
		delay, fixed := strings.CutSuffix(rest, afterText)
		period, start, from := strings.Cut(delay, fromText)
		d, err := time.ParseDuration(period)
		e := every{period: d, from: from}
		if from && err == nil {
			e.start, err = time.Parse(time.RFC3339Nano, start)
		}
		switch {
		case err != nil || e.check() != nil || fixed && from:
			return nil
		case fixed:
			return fixedDelay{d}
		}
		return e
	}
	if rest, ok := strings.CutPrefix(text, atText); ok {
		if t, err := time.Parse(time.RFC3339Nano, rest); err == nil {
			return oneShot{t}
		}
		return nil
	}
	expr, rest, _ := strings.Cut(text, " (")
	var opts []CronOption
	for _, word := range strings.Split(strings.TrimSuffix(rest, ")"), ", ") {
		switch word {
		case "":
		case unixCron.String():
			opts = append(opts, Unix())
		case springCron.String():
			opts = append(opts, Spring())
		case quartzCron.String():
			opts = append(opts, Quartz())
		default:
			location, err := time.LoadLocation(word)
			if err != nil {
				return nil
			}
			opts = append(opts, In(location))
		}
	}
	s, err := Cron(expr, opts...)
	if err != nil {
		return nil
	}
	return s
}

// nextOf returns the next instant of a schedule as Redis keeps it, in whole microseconds. It rounds up: rounded down, an instant would come
// again after itself.
func nextOf(s Schedule, after time.Time) (time.Time, bool) {
	t, ok := s.Next(after)
	if whole := t.Truncate(time.Microsecond); !whole.Equal(t) {
		t = whole.Add(time.Microsecond)
	}
	return t, ok
}
