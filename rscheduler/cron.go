package rscheduler

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// CronOption is a setting of [Cron].
type CronOption func(*cronOptions)

type cronOptions struct {
	location *time.Location
	dialects []dialect
}

// In sets the location whose wall clock a cron expression means. Without it, that is UTC. A location that [time.LoadLocation] does
// not know by its name, as one of [time.FixedZone], is followed by those processes alone that have registered it.
func In(location *time.Location) CronOption {
	return func(o *cronOptions) { o.location = location }
}

// Unix says that an expression of five fields is one of Unix cron, which is the default for five.
func Unix() CronOption { return dialectOption(unixCron) }

// Spring says that an expression of six fields is one of Spring.
func Spring() CronOption { return dialectOption(springCron) }

// Quartz says that an expression of six or seven fields is one of Quartz, which is the default for seven.
func Quartz() CronOption { return dialectOption(quartzCron) }

func dialectOption(d dialect) CronOption {
	return func(o *cronOptions) { o.dialects = append(o.dialects, d) }
}

// dialect says how an expression is read.
type dialect int

const (
	anyCron dialect = iota // six fields that mean the same in Spring and Quartz
	unixCron
	springCron
	quartzCron
)

func (d dialect) String() string { return [...]string{"", "Unix", "Spring", "Quartz"}[d] }

// cron is a parsed expression.
type cron struct {
	text     string
	location *time.Location
	dialect  dialect

	second, minute, hour, month, weekday uint64 // a bit for each value that matches
	day                                  uint64
	years                                []bool      // since firstYear; nil for all
	days                                 []monthRule // further days of the month
	weekdays                             []weekRule  // and of the week
	either                               bool        // a day has to match the day of the month or that of the week, not both
}

// monthRule is a day of the month counted from its end, or moved to a day from Monday to Friday.
type monthRule struct {
	day     int // 0 for one counted from the end
	back    int // days before the last one
	workday bool
}

// weekRule is a certain one of a weekday in the month.
type weekRule struct {
	day int
	nth int // 0 for the last one
}

const (
	firstYear = 1970
	maxYear   = 2199
)

// Cron returns the schedule of a cron expression, or an error that wraps redlatch.ErrInvalid. It has five fields, as in Unix: minute,
// hour, day of the month, month, day of the week; or six, as in Spring and Quartz, with seconds first; or seven, as in Quartz, with
// years last (1970 to 2199). Each is a list, separated by commas, of
//
//   - a value, a range as 9-17, or * for all; JAN to DEC and SUN to SAT may stand for numbers;
//   - each of these with a step, as */15 or 8-18/2; 5/15 is 5-59/15;
//   - of the day of the month: L for the last day, L-2 for two days before it, 15W for the day from Monday to Friday nearest to the
//     15th within the month, LW for the last one from Monday to Friday; a month without the day has none of these;
//   - of the day of the week: FRIL for the last Friday of the month, FRI#2 for the second.
//
// A ? in one of the two days is as a *. Days of the week may wrap, as FRI-MON; other ranges only in Quartz. Instead of all fields it may
// be @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly.
//
// The dialects differ. In Quartz 1 is Sunday; in the others it is Monday, and 0 and 7 are Sunday. If the day of the month and the day of
// the week are both restricted, either of them has to match in Unix, both in Spring, and Quartz refuses it. So an expression of six fields
// which depends on that has to name its dialect by [Quartz] or [Spring]. Quartz's C is refused: there are no calendars.
//
// The fields mean the wall clock of [In]. When it jumps ahead, what it skips comes at once, together. What it repeats comes the first
// time only. For an expression whose hours are all of the day neither applies: it goes on through every real hour.
func Cron(expr string, opts ...CronOption) (Schedule, error) {
	o := cronOptions{location: time.UTC}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("rscheduler: cron %q: %w", expr, errs.ErrNilOption)
		}
		opt(&o)
	}
	c, err := parseCron(expr, o)
	if err != nil {
		return nil, fmt.Errorf("rscheduler: cron %q: %w", expr, err)
	}
	return c, nil
}

// MustCron is [Cron] for expressions that a program has in its text. It panics if the expression is invalid.
func MustCron(expr string, opts ...CronOption) Schedule {
	s, err := Cron(expr, opts...)
	if err != nil {
		panic(err)
	}
	return s
}

//nolint:gochecknoglobals // a constant in all but name
var macros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *",
	"@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

func parseCron(expr string, o cronOptions) (*cron, error) {
	fields := strings.Fields(expr)
	c := &cron{text: strings.Join(fields, " "), location: o.location}
	if o.location == nil {
		return nil, invalid("the location is nil")
	}
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") {
		macro, ok := macros[strings.ToLower(fields[0])]
		if !ok {
			return nil, invalid("%q is none of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly", fields[0])
		}
		fields, o.dialects = strings.Fields(macro), []dialect{unixCron}
	}
	d, err := dialectOf(len(fields), o.dialects)
	if err != nil {
		return nil, err
	}
	if len(o.dialects) > 0 && d != unixCron && len(fields) == 6 {
		c.dialect = d
	}
	if len(fields) == 5 {
		fields = slices.Insert(fields, 0, "0")
	}
	if len(fields) == 6 {
		fields = append(fields, "*")
	}
	return c, c.parse(fields, d)
}

// dialectOf returns how an expression is read.
func dialectOf(fields int, named []dialect) (d dialect, err error) {
	want := map[int][]dialect{5: {unixCron}, 6: {anyCron, springCron, quartzCron}, 7: {quartzCron}}[fields]
	if want == nil {
		return d, invalid("it has %d fields, not 5, 6 or 7", fields)
	}
	d = want[0]
	for _, n := range named {
		if n != named[0] {
			return d, invalid("it cannot be of both %v and %v", named[0], n)
		}
		if d = n; !slices.Contains(want, d) {
			return d, invalid("one of %v does not have %d fields", d, fields)
		}
	}
	return d, nil
}

// field is what a field of an expression may have.
type field struct {
	name      string
	low, high int
	names     []string // of the values from the first on
	first     int
	wraps     bool
}

//nolint:gochecknoglobals // constants in all but name
var (
	monthNames   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

func (c *cron) parse(fields []string, d dialect) error {
	wraps := d == quartzCron
	for _, f := range []struct {
		field
		text string
		set  *uint64
	}{
		{field{name: "second", high: 59, wraps: wraps}, fields[0], &c.second},
		{field{name: "minute", high: 59, wraps: wraps}, fields[1], &c.minute},
		{field{name: "hour", high: 23, wraps: wraps}, fields[2], &c.hour},
		{field{name: "month", low: 1, high: 12, names: monthNames, first: 1, wraps: wraps}, fields[4], &c.month},
	} {
		for _, part := range strings.Split(f.text, ",") {
			values, err := f.values(part)
			if err != nil {
				return err
			}
			for _, v := range values {
				*f.set |= 1 << v
			}
		}
	}
	if err := c.parseYears(fields[6], wraps); err != nil {
		return err
	}
	return c.parseDays(fields[3], fields[5], d)
}

func (c *cron) parseYears(text string, wraps bool) error {
	if text == "*" {
		return nil
	}
	f := field{name: "year", low: firstYear, high: maxYear, wraps: wraps}
	c.years = make([]bool, maxYear-firstYear+1)
	for _, part := range strings.Split(text, ",") {
		values, err := f.values(part)
		if err != nil {
			return err
		}
		for _, v := range values {
			c.years[v-firstYear] = true
		}
	}
	return nil
}

func (c *cron) parseDays(month, week string, d dialect) error {
	isAll := func(text string) bool { return text == "*" || text == "?" }
	bothSet := !isAll(month) && !isAll(week)
	switch {
	case month == "?" && week == "?":
		return invalid("the day of the month and that of the week are both ?")
	case bothSet && d == quartzCron:
		return invalid("the day of the month and that of the week are both set: in Quartz one of them has to be ?")
	case bothSet && d == anyCron:
		return invalid("the day of the month and that of the week are both set, which differs between dialects: name Quartz() or Spring()")
	case d == anyCron && strings.ContainsAny(dropNth(week), "0123456789"):
		return invalid("the day of the week %q has digits, of which 1 is Sunday in Quartz and Monday elsewhere: name Quartz() or Spring()", week)
	}
	c.either = bothSet && d == unixCron
	for _, part := range strings.Split(month, ",") {
		if err := c.parseMonthDay(part, d); err != nil {
			return err
		}
	}
	for _, part := range strings.Split(week, ",") {
		if err := c.parseWeekday(part, d); err != nil {
			return err
		}
	}
	if _, ok := c.nextWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok && c.years == nil {
		return invalid("no day is ever such a one")
	}
	return nil
}

// dropNth returns days of the week without what counts them in the month or steps through them, which is the same in all dialects.
func dropNth(week string) string {
	parts := strings.Split(week, ",")
	for i, part := range parts {
		if at := strings.IndexAny(part, "#/"); at >= 0 {
			parts[i] = part[:at]
		}
	}
	return strings.Join(parts, ",")
}

func (c *cron) parseMonthDay(part string, d dialect) error {
	f := field{name: "day of the month", low: 1, high: 31, wraps: d == quartzCron}
	upper := strings.ToUpper(part)
	rest, workday := strings.CutSuffix(upper, "W")
	fromEnd, last := strings.CutPrefix(rest, "L")
	switch {
	case strings.Contains(upper, "C"):
		return errCalendar
	case part == "?":
		part = "*"
	case last && fromEnd == "":
		c.days = append(c.days, monthRule{workday: workday})
		return nil
	case last:
		back, err := strconv.Atoi(strings.TrimPrefix(fromEnd, "-"))
		if err != nil || !strings.HasPrefix(fromEnd, "-") || back < 0 || back > 30 {
			return invalid("the %s %q is not L, or L-0 to L-30", f.name, part)
		}
		c.days = append(c.days, monthRule{back: back, workday: workday})
		return nil
	case workday:
		day, err := f.value(rest)
		if err != nil {
			return err
		}
		c.days = append(c.days, monthRule{day: day, workday: true})
		return nil
	}
	values, err := f.values(part)
	for _, v := range values {
		c.day |= 1 << v
	}
	return err
}

var errCalendar = invalid("there are no calendars, which C would ask")

func (c *cron) parseWeekday(part string, d dialect) error {
	f := field{name: "day of the week", high: 7, names: weekdayNames, wraps: true}
	if d == quartzCron {
		f.low, f.first = 1, 1
	}
	day := func(v int) int { return (v - f.first) % 7 }
	one := func(text string) (int, error) {
		v, err := f.value(text)
		return day(v), err
	}
	upper := strings.ToUpper(part)
	before, nth, counted := strings.Cut(upper, "#")
	ofLast, last := strings.CutSuffix(upper, "L")
	switch {
	case strings.Contains(upper, "C"):
		return errCalendar
	case part == "?":
		part = "*"
	case counted:
		v, err := one(before)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 || n > 5 {
			return invalid("the %s %q is not the 1st to 5th of the month", f.name, part)
		}
		c.weekdays = append(c.weekdays, weekRule{v, n})
		return nil
	case last && ofLast == "" && d == quartzCron:
		part = "SAT"
	case last && ofLast == "":
		return invalid("the %s L means something in Quartz alone: SAT, or as FRIL the last Friday of the month", f.name)
	case last:
		v, err := one(ofLast)
		if err != nil {
			return err
		}
		c.weekdays = append(c.weekdays, weekRule{day: v})
		return nil
	}
	values, err := f.values(part)
	for _, v := range values {
		c.weekday |= 1 << day(v)
	}
	return err
}

// values returns the values of one part of a list.
func (f *field) values(part string) ([]int, error) {
	span, stepText, stepped := strings.Cut(part, "/")
	from, to, ranged := strings.Cut(span, "-")
	low, high, step := f.low, f.high, 1
	var err error
	if span == "*" {
		if f.low == 0 && f.high == 7 {
			high = 6 // 7 is Sunday again
		}
	} else {
		if low, err = f.value(from); err != nil {
			return nil, err
		}
		if !stepped {
			high = low
		}
		if ranged {
			if high, err = f.value(to); err != nil {
				return nil, err
			}
		}
	}
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.high-f.low+1 {
			return nil, invalid("the step %q of the %s is not between 1 and %d", stepText, f.name, f.high-f.low+1)
		}
	}
	cycle := f.high - f.low + 1
	if f.names != nil && f.high == 7 {
		cycle = 7
	}
	if high < low {
		if !f.wraps {
			return nil, invalid("the range %q of the %s ends before it begins", span, f.name)
		}
		high += cycle
	}
	var values []int
	for v := low; v <= high; v += step {
		if v > f.high {
			values = append(values, v-cycle)
		} else {
			values = append(values, v)
		}
	}
	return values, nil
}

func (f *field) value(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 {
		return i + f.first, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' || text[0] == '-' {
		return 0, invalid("the %s %q is not understood", f.name, text)
	}
	if v < f.low || v > f.high {
		return 0, invalid("the %s %d is not between %d and %d", f.name, v, f.low, f.high)
	}
	return v, nil
}

// String returns the expression, with its dialect and location as far as they are not the default.
func (c *cron) String() string {
	var notes []string
	if c.dialect != anyCron {
		notes = append(notes, c.dialect.String())
	}
	if c.location != time.UTC {
		notes = append(notes, c.location.String())
	}
	if len(notes) == 0 {
		return c.text
	}
	return c.text + " (" + strings.Join(notes, ", ") + ")"
}

// Next returns the first instant after a time.
func (c *cron) Next(after time.Time) (time.Time, bool) {
	after = after.In(c.location)
	if c.hour == 1<<24-1 {
		return c.nextReal(after)
	}
	for w := wallOf(after); ; {
		next, ok := c.nextWall(w)
		if !ok {
			return time.Time{}, false
		}
		if t := firstOf(next, c.location); t.After(after) {
			return t, true
		}
		w = next
	}
}

// nextReal returns the first instant after a time of an expression without hours, which goes on through every real hour.
func (c *cron) nextReal(after time.Time) (time.Time, bool) {
	for w := wallOf(after); ; {
		_, offset := after.Zone()
		next, ok := c.nextWall(w)
		if !ok {
			return time.Time{}, false
		}
		t := next.Add(-time.Duration(offset) * time.Second).In(c.location)
		_, end := after.ZoneBounds()
		if end.IsZero() || t.Before(end) {
			return t, true
		}
		after = end
		w = wallOf(end).Add(-time.Second)
	}
}

// wallOf returns what the clock on the wall shows, as a time in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// firstOf returns the first instant at which the clock on the wall shows w, or jumps past it.
func firstOf(w time.Time, location *time.Location) time.Time {
	t := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, location)
	start, end := t.ZoneBounds()
	switch shown := wallOf(t); {
	case shown.After(w):
		return start
	case shown.Before(w):
		return end
	case !start.IsZero():
		_, offset := start.Add(-time.Second).Zone()
		if before := w.Add(-time.Duration(offset) * time.Second); before.Before(start) {
			return before.In(location)
		}
	}
	return t
}

// nextWall returns the first time on the wall after w that matches.
func (c *cron) nextWall(w time.Time) (time.Time, bool) {
	t := w.Truncate(time.Second).Add(time.Second)
	for last := t.Year() + 400; t.Year() <= last; { // after 400 years all weekdays come again
		y, m, d := t.Date()
		switch {
		case c.years != nil && y > maxYear:
			return t, false
		case c.years != nil && (y < firstYear || !c.years[y-firstYear]):
			t = time.Date(y+1, 1, 1, 0, 0, 0, 0, time.UTC)
		case c.month&(1<<m) == 0:
			t = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.matchesDay(y, m, d):
			t = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
		case c.hour&(1<<t.Hour()) == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case c.minute&(1<<t.Minute()) == 0:
			t = t.Truncate(time.Minute).Add(time.Minute)
		default:
			rest := c.second >> t.Second()
			if rest != 0 {
				return t.Add(time.Duration(bits.TrailingZeros64(rest)) * time.Second), true
			}
			t = t.Truncate(time.Minute).Add(time.Minute)
		}
	}
	return t, false
}

func (c *cron) matchesDay(y int, m time.Month, d int) bool {
	weekday := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday())
	last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
	month := c.day&(1<<d) != 0 || slices.ContainsFunc(c.days, func(r monthRule) bool { return r.matches(d, weekday, last) })
	week := c.weekday&(1<<weekday) != 0 || slices.ContainsFunc(c.weekdays, func(r weekRule) bool {
		return r.day == weekday && (r.nth == 0 && d+7 > last || r.nth == (d+6)/7)
	})
	if c.either {
		return month || week
	}
	return month && week
}

// matches reports whether day d, of that weekday, in a month of so many days, is the one that the rule means.
func (r monthRule) matches(d, weekday, last int) bool {
	day := r.day
	if day == 0 {
		day = last - r.back
	}
	if day < 1 || day > last {
		return false
	}
	if r.workday {
		switch (weekday + day - d + 35) % 7 { // of the day
		case 6:
			if day--; day == 0 {
				day = 3
			}
		case 0:
			if day++; day > last {
				day = last - 2
			}
		}
	}
	return d == day
}
