package rscheduler_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/hashicorp/cronexpr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rscheduler"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	t.Fatalf("no time: %q", text)
	return time.Time{}
}

func in(t *testing.T, name string) rscheduler.CronOption {
	t.Helper()
	l, err := time.LoadLocation(name)
	require.NoError(t, err)
	return rscheduler.In(l)
}

// The instants were taken from a calendar: 1 January 2026 is a Thursday.
func TestCronComesWhenTheCalendarSays(t *testing.T) {
	type opts = []rscheduler.CronOption
	quartz, spring := opts{rscheduler.Quartz()}, opts{rscheduler.Spring()}
	for _, c := range []struct {
		expr string
		opts opts
		want []string // in UTC, after the beginning of 2026 or the first one if that begins with ">"
	}{
		{"*/15 * * * *", nil, []string{"2026-01-01 00:15", "2026-01-01 00:30", "2026-01-01 00:45", "2026-01-01 01:00"}},
		{"5/25 * * * *", nil, []string{"2026-01-01 00:05", "2026-01-01 00:30", "2026-01-01 00:55", "2026-01-01 01:05"}},
		{"0 */5 * * * *", nil, []string{"2026-01-01 00:05", "2026-01-01 00:10"}},
		{"*/20 59 23 * * *", nil, []string{"2026-01-01 23:59:00", "2026-01-01 23:59:20", "2026-01-01 23:59:40", "2026-01-02 23:59"}},
		{"0 8-18/5 * * *", nil, []string{"2026-01-01 08:00", "2026-01-01 13:00", "2026-01-01 18:00", "2026-01-02 08:00"}},
		{"0 9 * * mon-fri", nil, []string{"2026-01-01 09:00", "2026-01-02 09:00", "2026-01-05 09:00"}},
		{"0 0 * * FRI-MON", nil, []string{"2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05", "2026-01-09"}},
		{"0 0 * * SAT-SUN", nil, []string{"2026-01-03", "2026-01-04", "2026-01-10"}},
		{"0 0 * * 7", nil, []string{"2026-01-04", "2026-01-11"}},
		{"0 0 * * 0,3", nil, []string{"2026-01-04", "2026-01-07", "2026-01-11"}},
		{"0 0 * * 5-7", nil, []string{"2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"}},
		{"0 0 * * */3", nil, []string{"2026-01-03", "2026-01-04", "2026-01-07", "2026-01-10"}},
		{"0 0 L * *", nil, []string{"2026-01-31", "2026-02-28", "2026-03-31"}},
		{"0 0 1,L 2 ?", nil, []string{"2026-02-01", "2026-02-28", "2027-02-01"}},
		{"0 0 L-2 * *", nil, []string{"2026-01-29", "2026-02-26"}},
		{"0 0 L-30 * *", nil, []string{"> 2026-01-02", "2026-03-01", "2026-05-01"}},
		{"0 0 15W * *", nil, []string{"2026-01-15", "2026-02-16", "2026-03-16", "2026-04-15", "2026-05-15", "2026-06-15", "2026-07-15", "2026-08-14"}},
		{"0 0 1W * *", nil, []string{"2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01", "2026-08-03"}},
		{"0 0 31W * *", nil, []string{"2026-01-30", "2026-03-31", "2026-05-29"}},
		{"0 0 LW * *", nil, []string{"2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29"}},
		{"0 0 * * FRIL", nil, []string{"2026-01-30", "2026-02-27", "2026-03-27"}},
		{"0 0 * * 5L", nil, []string{"2026-01-30", "2026-02-27"}},
		{"0 0 * * FRI#2", nil, []string{"2026-01-09", "2026-02-13", "2026-03-13"}},
		{"0 0 * * 1#5", nil, []string{"2026-03-30", "2026-06-29"}},
		{"0 0 13 * FRI", nil, []string{"2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"}},
		{"0 0 */2 * MON", nil, []string{"2026-01-05", "2026-01-19", "2026-02-09"}},
		{"0 0 1-7 * */2", nil, []string{"2026-01-03", "2026-01-04", "2026-01-06", "2026-02-01"}},
		{"0 0 29 2 *", nil, []string{"2028-02-29", "2032-02-29"}},
		{"0 0 1 JAN,jul *", nil, []string{"2026-07-01", "2027-01-01"}},
		{"@hourly", nil, []string{"2026-01-01 01:00", "2026-01-01 02:00"}},
		{"@daily", nil, []string{"2026-01-02"}},
		{"@Weekly", nil, []string{"2026-01-04"}},
		{"@monthly", nil, []string{"2026-02-01"}},
		{"@annually", nil, []string{"2027-01-01"}},
		{"0 0 0 13 * FRI", spring, []string{"2026-02-13", "2026-03-13", "2026-11-13"}},
		{"0 0 12 ? * 2", spring, []string{"2026-01-06 12:00", "2026-01-13 12:00"}},
		{"0 0 12 ? * 2", quartz, []string{"2026-01-05 12:00", "2026-01-12 12:00"}},
		{"0 0 12 ? * 6L", quartz, []string{"2026-01-30 12:00"}},
		{"0 0 12 ? * 6#2", quartz, []string{"2026-01-09 12:00"}},
		{"0 0 12 ? * L", quartz, []string{"2026-01-03 12:00", "2026-01-10 12:00"}},
		{"0 0 12 ? * 7-1", quartz, []string{"2026-01-03 12:00", "2026-01-04 12:00", "2026-01-10 12:00"}},
		{"0 0 12 L-3W * ?", quartz, []string{"2026-01-28 12:00", "2026-02-25 12:00", "2026-03-27 12:00"}},
		{"0 0 0 ? * MON/2", quartz, []string{"2026-01-02", "2026-01-05", "2026-01-07", "2026-01-09", "2026-01-12"}},
		{"0 0 0 ? * MON/2", spring, []string{"2026-01-02", "2026-01-04", "2026-01-05", "2026-01-07", "2026-01-09", "2026-01-11"}},
		{"0 0 0 ? * */2", quartz, []string{"2026-01-03", "2026-01-04", "2026-01-06", "2026-01-08"}},
		{"0 0 0 ? * */2", spring, []string{"2026-01-02", "2026-01-04", "2026-01-05", "2026-01-07", "2026-01-09"}},
		{"0 0 0 ? * */3", spring, []string{"2026-01-04", "2026-01-05", "2026-01-08", "2026-01-11"}},
		{"0 0 0 ? * TUE,*/7", spring, []string{"2026-01-05", "2026-01-06", "2026-01-12"}},
		{"0 0 0 ? * SUN/2", spring, []string{"2026-01-04", "2026-01-11"}},
		{"0 0 0 ? * 7/2", spring, []string{"2026-01-04", "2026-01-11"}},
		{"0 0 0 ? * 0/2", spring, []string{"2026-01-03", "2026-01-04", "2026-01-06"}},
		{"0 0 0 ? * SUN-WED/2", spring, []string{"2026-01-04", "2026-01-06", "2026-01-11"}},
		{"0 0 0 ? * MON-SAT/2", nil, []string{"2026-01-02", "2026-01-05", "2026-01-07"}},
		{"0 0 22-2/2 ? * *", quartz, []string{"2026-01-01 02:00", "2026-01-01 22:00", "2026-01-02 00:00"}},
		{"0 0 12 ? * MON", nil, []string{"2026-01-05 12:00"}},
		{"0 0 12 ? * MON#1", nil, []string{"2026-01-05 12:00", "2026-02-02 12:00"}},
		{"0 0 12 1 1 ? 2028", nil, []string{"2028-01-01 12:00", ""}},
		{"0 0 12 ? 1 1 2027-2028", nil, []string{"2027-01-03 12:00", "2027-01-10 12:00"}},

		// Berlin: ahead on 29 March 2026 at 01:00 UTC, back on 25 October at 01:00 UTC.
		{"30 2 * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"15,45 2,3 * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-03-28 12:00", "2026-03-29 01:00", "2026-03-29 01:15", "2026-03-29 01:45"}},
		{"30 2 * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"}},
		{"*/30 2-3 * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 02:00", "2026-10-25 02:30"}},
		{"*/30 2-3 * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-10-25 01:10", "2026-10-25 02:00"}},
		{"*/30 * * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"}},
		{"*/30 * * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30"}},
		{"0 * * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"}},
		{"0 * * * *", opts{in(t, "Europe/Berlin")}, []string{"> 2040-12-30 23:30", "2040-12-31 00:00", "2040-12-31 01:00"}},
		{"0 0 * 29 2 MON", opts{rscheduler.Spring(), in(t, "Europe/Berlin")}, []string{"2044-02-28 23:00", "2044-02-29 00:00"}},
		{"0 30 2 * * ?", opts{rscheduler.Quartz(), in(t, "Europe/Berlin")}, []string{"> 2026-03-28 12:00", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"0 30 2 * * *", opts{rscheduler.Spring(), in(t, "Europe/Berlin")}, []string{"> 2026-03-28 12:00", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"0 30 2 * * ?", opts{rscheduler.Quartz(), in(t, "Europe/Berlin")}, []string{"> 2026-10-24 12:00", "2026-10-25 00:30", "2026-10-26 01:30"}},
		{"0 30 2 * * *", opts{rscheduler.Spring(), in(t, "Europe/Berlin")}, []string{"> 2026-10-24 12:00", "2026-10-25 00:30", "2026-10-26 01:30"}},
		// São Paulo had no midnight on 4 November 2018; Lord Howe's clocks go back by half an hour.
		{"0 0 * * *", opts{in(t, "America/Sao_Paulo")}, []string{"> 2018-11-03 03:00", "2018-11-04 03:00", "2018-11-05 02:00"}},
		{"45 1 * * *", opts{in(t, "Australia/Lord_Howe")}, []string{"> 2026-04-04 00:00", "2026-04-04 14:45", "2026-04-05 15:15"}},
	} {
		s, err := rscheduler.Cron(c.expr, c.opts...)
		if !assert.NoError(t, err) {
			continue
		}
		now := at(t, "2026-01-01")
		if first, ok := strings.CutPrefix(c.want[0], "> "); ok {
			now, c.want = at(t, first), c.want[1:]
		}
		for _, want := range c.want {
			next, ok := s.Next(now)
			if want == "" {
				assert.False(t, ok, "%v", s)
				break
			}
			require.True(t, ok, "%v", s)
			assert.Equal(t, at(t, want), next.UTC(), "%v after %v", s, now)
			now = next
		}
	}
}

// The table has expressions about which users of other schedulers have disagreed with them.
func TestCronComesAsTheTableSays(t *testing.T) {
	table, err := os.ReadFile("testdata/cron.txt")
	require.NoError(t, err)
	dialects := map[string][]rscheduler.CronOption{
		"Unix": {rscheduler.Unix()}, "Spring": {rscheduler.Spring()}, "Quartz": {rscheduler.Quartz()}, "any": nil,
	}
	rows := 0
	for line := range strings.Lines(string(table)) {
		row := strings.Split(strings.TrimSpace(line), " | ")
		if len(row) == 1 {
			continue // a heading
		}
		require.Len(t, row, 5, line)
		require.Contains(t, dialects, row[0], line)
		rows++
		s, err := rscheduler.Cron(row[2], append(dialects[row[0]], in(t, row[1]))...)
		if row[4] == "refused" {
			assert.ErrorIs(t, err, errs.ErrInvalid, line)
			continue
		}
		if !assert.NoError(t, err, line) {
			continue
		}
		now := at(t, row[3])
		for _, want := range strings.Split(row[4], ", ") {
			next, ok := s.Next(now)
			if !assert.True(t, ok, line) || !assert.Equal(t, at(t, want), next.UTC(), line) {
				break
			}
			now = next
		}
	}
	assert.Greater(t, rows, 150)
}

func TestCronRefusesWhatItCannotMean(t *testing.T) {
	for _, c := range []struct {
		expr, says string
		opts       []rscheduler.CronOption
	}{
		{"", "0 fields", nil},
		{"* * * *", "4 fields", nil},
		{"* * * * * * * *", "8 fields", nil},
		{"@reboot", "@reboot", nil},
		{"60 * * * *", "minute 60", nil},
		{"* 24 * * *", "hour 24", nil},
		{"* * 0 * *", "day of the month 0", nil},
		{"* * * 13 *", "month 13", nil},
		{"* * * * 8", "day of the week 8", nil},
		{"* * * * MOON", `"MOON"`, nil},
		{"*/0 * * * *", "step", nil},
		{"*/61 * * * *", "step", nil},
		{"30-10 * * * *", "ends before", nil},
		{"1,,2 * * * *", "minute", nil},
		{"-1 * * * *", "minute", nil},
		{"+1 * * * *", "minute", nil},
		{"? * * * *", "minute", nil},
		{"* * ? * ?", "both ?", nil},
		{"* * L3 * *", "L-30", nil},
		{"* * L-31 * *", "L-30", nil},
		{"* * 1-5W * *", `"1-5"`, nil},
		{"* * * * L", "Quartz alone", nil},
		{"* * * * FRI#6", "5th", nil},
		{"0 0 30 2 *", "ever", nil},
		{"0 0 12 * * 1", "name Quartz() or Spring()", nil},
		{"0 0 12 * * 1-5", "name Quartz() or Spring()", nil},
		{"0 0 12 * * TUE,MON/2", "name Quartz() or Spring()", nil},
		{"0 0 12 ? * */2", "name Quartz() or Spring()", nil},
		{"0 0 12 ? * SUN/2", "name Quartz() or Spring()", nil},
		{"0 0 12 ? * 6L", "name Quartz() or Spring()", nil},
		{"0 0 12 1 * MON", "name Quartz() or Spring()", nil},
		{"0 0 12 1 * MON", "has to be ?", []rscheduler.CronOption{rscheduler.Quartz()}},
		{"0 0 12 1 * MON 2027", "has to be ?", nil},
		{"0 0 12 ? * 0", "day of the week 0", []rscheduler.CronOption{rscheduler.Quartz()}},
		{"0 0 12 5C * ?", "calendars", []rscheduler.CronOption{rscheduler.Quartz()}},
		{"0 0 12 ? * 1C", "calendars", []rscheduler.CronOption{rscheduler.Quartz()}},
		{"0 0 12 1 1 ? 1969", "year 1969", nil},
		{"0 12 * * *", "5 fields", []rscheduler.CronOption{rscheduler.Quartz()}},
		{"0 0 12 * * *", "6 fields", []rscheduler.CronOption{rscheduler.Unix()}},
		{"0 0 12 1 1 ? 2027", "7 fields", []rscheduler.CronOption{rscheduler.Spring()}},
		{"0 0 12 * * *", "both", []rscheduler.CronOption{rscheduler.Spring(), rscheduler.Quartz()}},
		{"* * * * *", "location", []rscheduler.CronOption{rscheduler.In(nil)}},
		{"* * * * *", "another host", []rscheduler.CronOption{rscheduler.In(time.Local)}},
		{"* * * * *", "of that name", []rscheduler.CronOption{rscheduler.In(time.FixedZone("CET", 3600))}},
		{"* * * * *", "of that name", []rscheduler.CronOption{rscheduler.In(time.FixedZone("UTC", 3600))}},
		{"* * * * *", "of that name", []rscheduler.CronOption{rscheduler.In(tenDaysOff(t, "UTC"))}},
		{"* * * * *", "option", []rscheduler.CronOption{nil}},
	} {
		_, err := rscheduler.Cron(c.expr, c.opts...)
		if assert.ErrorIs(t, err, errs.ErrInvalid, c.expr) {
			assert.ErrorContains(t, err, c.says, c.expr)
		}
	}
	assert.Panics(t, func() { rscheduler.MustCron("* * *") })
}

// tenDaysOff returns a location that is as UTC but for ten days within a month, when it is an hour ahead.
func tenDaysOff(t *testing.T, name string) *time.Location {
	t.Helper()
	data := append([]byte("TZif"), make([]byte, 28)...)
	for _, n := range []int64{2, 2, 4, at(t, "2005-03-10").Unix(), at(t, "2005-03-20").Unix()} { // 2 times, 2 zones, a name of 4 bytes
		data = binary.BigEndian.AppendUint32(data, uint32(n))
	}
	data = append(data, 1, 0)                                     // which zone begins
	data = append(data, 0, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0x10, 1, 0) // 0 and 3600 s
	l, err := time.LoadLocationFromTZData(name, append(data, "UTC\x00"...))
	require.NoError(t, err)
	return l
}

// part makes one part of a field at random.
func part(random *rand.Rand, low, high int) string {
	a := low + random.IntN(high-low+1)
	b := a + random.IntN(high-a+1)
	switch random.IntN(6) {
	case 0:
		return fmt.Sprintf("*/%d", 1+random.IntN(high-low))
	case 1:
		return fmt.Sprintf("%d-%d", a, b)
	case 2:
		return fmt.Sprintf("%d-%d/%d", a, b, 1+random.IntN(3))
	case 3:
		return fmt.Sprintf("%d,%d", a, b)
	case 4:
		return fmt.Sprint(a)
	}
	return "*"
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// The second implementation is hashicorp/cronexpr, without time zones, in which it follows another rule, and without the range 0-0 of
// weekdays, which it takes for all. Its week begins with Sunday also for */2.
func TestCronAgreesWithAnotherImplementation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for range 3000 {
		month, week := part(random, 1, 28), "*"
		switch random.IntN(4) {
		case 0:
			month = pick(random, "L", "LW", fmt.Sprintf("%dW", 1+random.IntN(28)))
		case 1:
			month, week = "*", pick(random, strings.Replace(part(random, 1, 6), "*/", "0-6/", 1), "FRIL", "MON#2", "3L", "SUN#1", "SAT#5", "MON-FRI")
		}
		fields := []string{part(random, 0, 59), part(random, 0, 59), part(random, 0, 23), month, part(random, 1, 12), week}
		expr := strings.Join(fields, " ")
		mine, err := rscheduler.Cron(expr, rscheduler.Spring())
		if err != nil {
			require.ErrorContains(t, err, "ever", expr)
			continue
		}
		other, err := cronexpr.Parse(expr + " *")
		require.NoError(t, err, expr)
		now := at(t, "2020-01-01").Add(time.Duration(random.Int64N(int64(20 * 365 * 24 * time.Hour))))
		for range 10 {
			next, ok := mine.Next(now)
			require.True(t, ok, expr)
			require.Equal(t, other.Next(now), next.UTC(), "%s after %v", expr, now)
			now = next
			compared++
		}
	}
	require.Greater(t, compared, 20_000)
}

// Next is the first instant after: nothing between is left out, wherever one starts.
func TestCronSkipsNothingWhenTheClocksChange(t *testing.T) {
	for _, expr := range []string{"17 * * * *", "17 1-3 * * *", "*/20 2 * * *"} {
		s := rscheduler.MustCron(expr, in(t, "Europe/Berlin"))
		for _, from := range []string{"2026-03-28 12:00", "2026-10-24 12:00"} {
			begin := at(t, from)
			var all []time.Time
			for next, _ := s.Next(begin); next.Before(begin.Add(36 * time.Hour)); next, _ = s.Next(next) {
				all = append(all, next)
			}
			for now, i := begin, 0; i < len(all); now = now.Add(7 * time.Minute) {
				for i < len(all) && !all[i].After(now) {
					i++
				}
				if i < len(all) {
					next, _ := s.Next(now)
					require.True(t, all[i].Equal(next), "%v after %v: %v, not %v", s, now, next, all[i])
				}
			}
		}
	}
}
