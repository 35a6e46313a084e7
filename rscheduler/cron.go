package rscheduler

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/option"
)

// CronOption is a setting of [Cron].
type CronOption interface{ set(o *cronOptions) }

type cronSetting func(*cronOptions)

func (s cronSetting) set(o *cronOptions) { s(o) }

type cronOptions struct {
	location *time.Location
	dialects []dialect
}

// In sets the location whose wall clock a cron expression means. Without it, that is UTC. A location that [time.LoadLocation] does
// not know by its name, as one of [time.FixedZone], is followed by those processes alone that have registered it. [Cron] refuses
// [time.Local] and a location that has the name of another one, as processes on other hosts would come to other instants.
func In(location *time.Location) CronOption {
	return cronSetting(func(o *cronOptions) { o.location = location })
}

// Unix says that an expression of five fields is one of Unix cron, which is the default for five.
func Unix() CronOption { return dialectOption(unixCron) }

// Spring says that an expression of six fields is one of Spring. When clocks change it follows the rule of [Cron], and not Spring's: 02:30
// in Berlin, which Spring leaves out on the day in March, comes at 03:00 then, and on the day in October the first time, not both.
func Spring() CronOption { return dialectOption(springCron) }

// Quartz says that an expression of six or seven fields is one of Quartz, which is the default for seven. When clocks change it follows
// the rule of [Cron], and not Quartz's: 02:30 in Berlin, which Quartz leaves out on the day in March, comes at 03:00 then, and on the day
// in October the first time, not the second.
func Quartz() CronOption { return dialectOption(quartzCron) }

func dialectOption(d dialect) CronOption {
	return cronSetting(func(o *cronOptions) { o.dialects = append(o.dialects, d) })
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
	dialect  dialect // as it was named; anyCron where that says nothing
	fields   [7]field
	either   bool // a day has to match the day of the month or that of the week, not both
}

const ( // the fields of an expression
	second = iota
	minute
	hour
	monthDay
	month
	weekday
	year
)

// field is what one of the fields may have, and what it has.
type field struct {
	name      string
	low, high int
	cycle     int      // how many values there are: 7 as a day of the week is 0
	names     []string // of the values from low on
	wraps     bool
	values    []bool // from low on; nil for all
	rules     []rule // the days that values cannot say
}

// rule reports whether it means day d, of that weekday, in a month of so many days.
type rule func(d, weekday, last int) bool

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
// The dialects differ. In Quartz 1 is Sunday; in the others it is Monday, and 0 and 7 are Sunday. Days of the week as */2 count from
// Monday in Spring and from Sunday in the others; days as MON/2 end with Saturday in Quartz and with Sunday in the others. If the day of
// the month and the day of the week are both restricted, either of them has to match in Unix, both in Spring, and Quartz refuses it; as in
// Vixie cron, both have to match in Unix if one begins with *, as */2. So an expression of six fields which depends on that has to name
// its dialect by [Quartz] or [Spring]. Quartz's C is refused: there are no calendars.
//
// The fields mean the wall clock of [In], in all dialects. When it jumps ahead, what it skips comes at once, together. What it repeats comes the first
// time only. For an expression whose hours are all of the day neither applies: it goes on through every real hour.
func Cron(expr string, opts ...CronOption) (Schedule, error) {
	o := cronOptions{location: time.UTC}
	if err := option.Apply(opts, &o, CronOption.set); err != nil {
		return nil, fmt.Errorf("rscheduler: cron %q: %w", expr, err)
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
	if err := checkLocation(o.location); err != nil {
		return nil, err
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
	switch len(fields) {
	case 5:
		fields = append([]string{"0"}, append(fields, "*")...)
	case 6:
		c.dialect = d
		fields = append(fields, "*")
	}
	return c, c.parse(fields, d)
}

// checkLocation refuses a location whose name means other times on other hosts: the text of a schedule has only the name, by which
// processes that have not registered it load the location. It compares all times from 2000 to 2037.
func checkLocation(location *time.Location) error {
	if location == nil {
		return invalid("the location is nil")
	}
	name := location.String()
	if location == time.Local || name == "Local" {
		return invalid("the location Local is another one on another host: load it by the name of its zone")
	}
	named, err := time.LoadLocation(name)
	if err != nil {
		return nil //nolint:nilerr // nobody confuses it with another one
	}
	for t := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); !t.IsZero() && t.Year() < 2038; {
		here, there := t.In(location), t.In(named)
		_, offset := here.Zone()
		if _, other := there.Zone(); offset != other {
			return invalid("the location %q is not the zone of that name, which other hosts would take: load it, or give it a name of its own", name)
		}
		_, t = here.ZoneBounds()
		if _, end := there.ZoneBounds(); t.IsZero() || !end.IsZero() && end.Before(t) {
			t = end
		}
	}
	return nil
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

func (c *cron) parse(texts []string, d dialect) error {
	days, week := texts[monthDay], strings.ToUpper(texts[weekday])
	bothSet := days != "*" && days != "?" && week != "*" && week != "?"
	switch {
	case days == "?" && week == "?":
		return invalid("the day of the month and that of the week are both ?")
	case bothSet && d == quartzCron:
		return invalid("the day of the month and that of the week are both set: in Quartz one of them has to be ?")
	case bothSet && d == anyCron:
		return invalid("the day of the month and that of the week are both set, which differs between dialects: name Quartz() or Spring()")
	case d == anyCron && dialectMatters.MatchString(week):
		return invalid("the day of the week %q has a digit, of which 1 is Sunday in Quartz and Monday elsewhere, or steps to the end of the week, which is Saturday in Quartz and Sunday elsewhere: name Quartz() or Spring()", week)
	}
	c.either = bothSet && d == unixCron && days[0] != '*' && week[0] != '*'
	c.fields = [...]field{
		{name: "second", high: 59, cycle: 60},
		{name: "minute", high: 59, cycle: 60},
		{name: "hour", high: 23, cycle: 24},
		{name: "day of the month", low: 1, high: 31, cycle: 31},
		{name: "month", low: 1, high: 12, cycle: 12, names: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
		{name: "day of the week", high: 7, cycle: 7, names: strings.Fields("SUN MON TUE WED THU FRI SAT"), wraps: true},
		{name: "year", low: firstYear, high: maxYear, cycle: maxYear - firstYear + 1},
	}
	if d == quartzCron {
		c.fields[weekday].low = 1
	}
	for i := range c.fields {
		if i == year && texts[i] == "*" {
			break // years may be later than those that can be named
		}
		f := &c.fields[i]
		f.wraps = f.wraps || d == quartzCron
		f.values = make([]bool, f.cycle)
		for _, part := range strings.Split(strings.ToUpper(texts[i]), ",") {
			add := f.add
			switch {
			case i != monthDay && i != weekday:
			case part == "?":
				part = "*"
			case strings.Contains(part, "C"):
				return invalid("there are no calendars, which C would ask")
			case i == monthDay:
				add = f.addMonthDay
			case part == "L" && d == quartzCron:
				part = "SAT"
			case strings.Contains(part, "/") && d == springCron: // whose week is Monday to Sunday
				part = strings.NewReplacer("*/", "1-7/", "SUN/", "7/").Replace(part)
				add = f.addWeekday
			default:
				add = f.addWeekday
			}
			if err := add(part); err != nil {
				return err
			}
		}
	}
	if _, ok := c.nextWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok && texts[year] == "*" {
		return invalid("no day is ever such a one")
	}
	return nil
}

// dialectMatters finds the digits of days of the week, and steps from a day on or from *. What counts days in the month, or steps
// through a range, is the same in all dialects.
var dialectMatters = regexp.MustCompile(`(^|,)([^,#/]*\d|([A-Z]+|\*)/)`)

// addMonthDay adds one part of a list of days of the month.
func (f *field) addMonthDay(part string) (err error) {
	rest, workday := strings.CutSuffix(part, "W")
	rest, fromEnd := strings.CutPrefix(rest, "L")
	day := 0
	switch {
	case !fromEnd && !workday:
		return f.add(part)
	case !fromEnd:
		day, err = f.value(rest)
	case rest != "":
		if day, err = strconv.Atoi(rest); err != nil || rest[0] != '-' || day < -30 {
			err = invalid("the %s %q is not L, or L-0 to L-30", f.name, part)
		}
	}
	f.rules = append(f.rules, func(d, weekday, last int) bool {
		day := day
		if fromEnd {
			day += last
		}
		if day < 1 || day > last {
			return false
		}
		if workday {
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
	})
	return err
}

// addWeekday adds one part of a list of days of the week.
func (f *field) addWeekday(part string) (err error) {
	name, count, counted := strings.Cut(part, "#")
	ofLast, last := strings.CutSuffix(part, "L")
	n := 0 // the last one
	switch {
	case part == "L":
		return invalid("the %s L means something in Quartz alone: SAT, or as FRIL the last Friday of the month", f.name)
	case counted:
		if n, err = strconv.Atoi(count); err != nil || n < 1 || n > 5 {
			return invalid("the %s %q is not the 1st to 5th of the month", f.name, part)
		}
	case last:
		name = ofLast
	default:
		return f.add(part)
	}
	v, err := f.value(name)
	f.rules = append(f.rules, func(d, weekday, last int) bool {
		return weekday == (v-f.low)%7 && (n == 0 && d+7 > last || n == (d+6)/7)
	})
	return err
}

// add adds the values of one part of a list.
func (f *field) add(part string) (err error) {
	span, stepText, stepped := strings.Cut(part, "/")
	from, to, ranged := strings.Cut(span, "-")
	low, high, step := f.low, f.low+f.cycle-1, 1
	if span != "*" {
		if low, err = f.value(from); err != nil {
			return err
		}
		switch {
		case ranged:
			high, err = f.value(to)
		case stepped:
			high = f.high
		default:
			high = low
		}
		if err != nil {
			return err
		}
	}
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.high-f.low+1 {
			return invalid("the step %q of the %s is not between 1 and %d", stepText, f.name, f.high-f.low+1)
		}
	}
	if high < low {
		if !f.wraps {
			return invalid("the range %q of the %s ends before it begins", span, f.name)
		}
		high += f.cycle
	}
	for v := low; v <= high; v += step {
		f.values[(v-f.low)%f.cycle] = true
	}
	return nil
}

func (f *field) value(text string) (int, error) {
	if i := slices.Index(f.names, text); i >= 0 {
		return i + f.low, nil
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

// has reports whether a field has the value that stands so far above the first one.
func (c *cron) has(field, above int) bool {
	values := c.fields[field].values
	return values == nil || above >= 0 && above < len(values) && values[above]
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
	if !slices.Contains(c.fields[hour].values, false) {
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
		if !end.IsZero() && !end.After(after) { // as ZoneBounds has it for the last day of leap years after 2037
			end = after.Add(24 * time.Hour)
		}
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
		case !c.has(year, y-firstYear):
			t = time.Date(y+1, 1, 1, 0, 0, 0, 0, time.UTC)
		case !c.has(month, int(m)-1):
			t = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.matchesDay(y, m, d):
			t = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
		case !c.has(hour, t.Hour()):
			t = t.Truncate(time.Hour).Add(time.Hour)
		case !c.has(minute, t.Minute()):
			t = t.Truncate(time.Minute).Add(time.Minute)
		case !c.has(second, t.Second()):
			t = t.Add(time.Second)
		default:
			return t, true
		}
	}
	return t, false
}

func (c *cron) matchesDay(y int, m time.Month, d int) bool {
	of := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday())
	last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
	matches := func(r rule) bool { return r(d, of, last) }
	byMonth := c.has(monthDay, d-1) || slices.ContainsFunc(c.fields[monthDay].rules, matches)
	byWeek := c.has(weekday, of) || slices.ContainsFunc(c.fields[weekday].rules, matches)
	if c.either {
		return byMonth || byWeek
	}
	return byMonth && byWeek
}
