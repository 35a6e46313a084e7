package rscheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
