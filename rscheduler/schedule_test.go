package rscheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rscheduler"
)

func TestSchedulesComeWhenTheyAreToCome(t *testing.T) {
	now := at(t, "2026-11-24 10:00:07")
	for _, c := range []struct {
		s    rscheduler.Schedule
		want string
	}{
		{rscheduler.Every(10 * time.Second), "2026-11-24 10:00:10"},
		{rscheduler.Every(7 * 24 * time.Hour), "2026-11-26"}, // the epoch was a Thursday
		{rscheduler.EveryAfter(time.Minute), "2026-11-24 10:01:07"},
		{rscheduler.At(at(t, "2026-12-01")), "2026-12-01"},
		{rscheduler.At(now), ""},
		{rscheduler.Every(0), ""},
		{rscheduler.EveryAfter(-1), ""},
	} {
		next, ok := c.s.Next(now)
		if assert.Equal(t, c.want != "", ok, "%v", c.s) && ok {
			assert.Equal(t, at(t, c.want), next.UTC(), "%v", c.s)
		}
	}
	next, _ := rscheduler.Every(time.Hour).Next(at(t, "1969-12-31 22:30"))
	assert.Equal(t, at(t, "1969-12-31 23:00"), next)
	next, _ = rscheduler.Every(time.Hour).Next(at(t, "1969-12-31 22:00"))
	assert.Equal(t, at(t, "1969-12-31 23:00"), next)
}

// instants is a schedule of a program's own.
type instants []time.Time

func (s instants) Next(after time.Time) (time.Time, bool) {
	for _, t := range s {
		if t.After(after) {
			return t, true
		}
	}
	return time.Time{}, false
}

func (s instants) String() string { return fmt.Sprint([]time.Time(s)) }

// F7: the first two are one microsecond for Redis.
func TestInstantsBetweenMicrosecondsRunOnceAndAreCaughtUpWith(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		at := func(seconds int, rest time.Duration) time.Time {
			return r.start.Add(time.Duration(seconds)*time.Second + rest)
		}
		all := instants{at(10, 300), at(10, 400), at(20, time.Microsecond-1), at(70, 1), at(200, 999)}
		catchUp := rscheduler.WithCatchUp(time.Hour)
		s, _ := r.worker(t, all, r.handle, catchUp)
		stop := run(t, s)
		time.Sleep(45 * time.Second)
		assert.Equal(t, []string{"10:1", "20:1"}, r.take())
		require.NoError(t, stop())
		time.Sleep(45 * time.Second)
		s, _ = r.worker(t, all, r.handle, catchUp)
		run(t, s)
		time.Sleep(time.Minute)
		assert.Equal(t, at(200, time.Microsecond), job(t, s).Next)
		r.mu.Lock()
		if assert.Len(t, r.runs, 1) {
			assert.Equal(t, at(70, time.Microsecond), r.runs[0].Scheduled.UTC())
		}
		r.mu.Unlock()
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"70:1", "200:1"}, r.take())
	})
}
